// What screen readers hear of changes: one sentence every few seconds, however much happens.
import { signal } from "@preact/signals";
import type { InstanceStatus } from "../generated/api.ts";
import { words } from "../format.ts";

export const spoken = signal("");

const EVERY = 2500;
let waiting = new Map<string, InstanceStatus>();
let timer: ReturnType<typeof setTimeout> | undefined;

export function say(name: string, status: InstanceStatus): void {
  waiting.set(name, status);
  timer ??= setTimeout(() => {
    timer = undefined;
    spoken.value = sentence(waiting);
    waiting = new Map();
  }, EVERY);
}

export function sentence(changes: ReadonlyMap<string, InstanceStatus>): string {
  if (changes.size <= 3) return [...changes].map(([name, status]) => `${name}: ${words(status)}.`).join(" ");
  const counts = new Map<InstanceStatus, number>();
  for (const status of changes.values()) counts.set(status, (counts.get(status) ?? 0) + 1);
  const parts = [...counts].map(([status, number]) => `${number} ${words(status).toLowerCase()}`);
  return `${changes.size} instances changed: ${parts.join(", ")}.`;
}
