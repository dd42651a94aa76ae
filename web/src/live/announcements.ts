// Changes as announced to screen readers: one sentence every few seconds, however many there are.
import { signal } from "@preact/signals";
import type { InstanceStatus } from "../generated/api.ts";
import { words } from "../format.ts";

export const announcement = signal("");

const INTERVAL = 2500;
let pending = new Map<string, InstanceStatus>();
let timer: ReturnType<typeof setTimeout> | undefined;

export function announce(name: string, status: InstanceStatus): void {
  pending.set(name, status);
  timer ??= setTimeout(() => {
    timer = undefined;
    announcement.value = sentence(pending);
    pending = new Map();
  }, INTERVAL);
}

export function sentence(changes: ReadonlyMap<string, InstanceStatus>): string {
  if (changes.size <= 3) return [...changes].map(([name, status]) => `${name}: ${words(status)}.`).join(" ");
  const counts = new Map<InstanceStatus, number>();
  for (const status of changes.values()) counts.set(status, (counts.get(status) ?? 0) + 1);
  const parts = [...counts].map(([status, number]) => `${number} ${words(status).toLowerCase()}`);
  return `${changes.size} instances changed: ${parts.join(", ")}.`;
}
