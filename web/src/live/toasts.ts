// Short messages about finished operations. Many at once are merged into one.
import { signal } from "@preact/signals";
import { count } from "../format.ts";

export interface Toast {
  readonly id: number;
  readonly kind: "good" | "bad" | "plain";
  readonly title: string;
  readonly text?: string | undefined;
  readonly href?: string | undefined;
  readonly undo?: (() => void) | undefined;
}

export const toasts = signal<readonly Toast[]>([]);

const MAX_SHOWN = 4;
const BATCH_WINDOW = 600;
const MAX_UNMERGED = 2;
let lastId = 0;
let batch: Omit<Toast, "id">[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

export function toast(message: Omit<Toast, "id">): void {
  const id = ++lastId;
  toasts.value = [...toasts.value, { ...message, id }].slice(-MAX_SHOWN);
  // Errors stay until they are dismissed.
  if (message.kind !== "bad") setTimeout(() => dismiss(id), message.undo ? 12_000 : 6000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

export function toastBatched(message: Omit<Toast, "id">): void {
  batch.push(message);
  timer ??= setTimeout(flush, BATCH_WINDOW);
}

function flush(): void {
  timer = undefined;
  const all = batch;
  batch = [];
  if (all.length <= MAX_UNMERGED) {
    for (const each of all) toast(each);
    return;
  }
  const failed = all.filter((each) => each.kind === "bad").length;
  const others = all.length - failed;
  const title = failed ? `${count(failed, "operation")} failed, ${others} finished` : `${count(others, "operation")} finished`;
  toast({ kind: failed ? "bad" : "good", title, href: "#/" });
}
