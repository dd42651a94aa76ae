// Short messages about what has ended. A flood of them becomes one line.
import { signal } from "@preact/signals";
import { count } from "../format.ts";

export interface Toast {
  readonly id: number;
  readonly kind: "good" | "bad" | "plain";
  readonly title: string;
  readonly text?: string | undefined;
  readonly href?: string | undefined;
}

export const toasts = signal<readonly Toast[]>([]);

const MOST = 4;
const GATHER = 600;
const SINGLY = 2;
let lastId = 0;
let gathered: Omit<Toast, "id">[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

export function toast(message: Omit<Toast, "id">): void {
  const id = ++lastId;
  toasts.value = [...toasts.value, { ...message, id }].slice(-MOST);
  // What went wrong stays until somebody has read it.
  if (message.kind !== "bad") setTimeout(() => dismiss(id), 6000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

export function tellSoon(message: Omit<Toast, "id">): void {
  gathered.push(message);
  timer ??= setTimeout(tell, GATHER);
}

function tell(): void {
  timer = undefined;
  const all = gathered;
  gathered = [];
  if (all.length <= SINGLY) {
    for (const each of all) toast(each);
    return;
  }
  const failed = all.filter((each) => each.kind === "bad").length;
  const done = all.length - failed;
  const title = failed ? `${count(failed, "operation")} failed, ${done} done` : `${count(done, "operation")} done`;
  toast({ kind: failed ? "bad" : "good", title, href: "#/" });
}
