// Limits of an instance’s lifetime: presets, and the next action as words.
import { duration } from "../format.ts";
import type { LifetimeInput } from "../generated/api.ts";

export type Preset = "" | "4h" | "18:00" | "idle";

export const PRESETS: readonly { value: Exclude<Preset, "">; text: string }[] = [
  { value: "4h", text: "Stop after 4 h" },
  { value: "18:00", text: "Stop at 18:00" },
  { value: "idle", text: "Stop when idle for 30 min" },
];

// The server refuses a deadline that is nearer than five minutes.
const NEAREST = 5 * 60_000;

export function presetInput(preset: Exclude<Preset, "">, now: number): LifetimeInput {
  if (preset === "4h") return { maxDuration: 4 * 3600 };
  if (preset === "idle") return { idle: { window: 1800 } };
  const end = new Date(now);
  end.setHours(18, 0, 0, 0);
  if (end.getTime() < now + NEAREST) end.setDate(end.getDate() + 1);
  return { deadline: end.toISOString() };
}

export interface Next {
  readonly at: string;
  readonly action: string;
  readonly reason: string;
}

const WORDS: Record<string, string> = { START: "starts", STOP: "stops", DELETE: "deletes" };

// “stops in 12m 3s”; an idle end happens only if the GPUs stay idle.
export function nextWords(next: Next, now: number): string {
  const left = Date.parse(next.at) - now;
  const verb = WORDS[next.action] ?? next.action.toLowerCase();
  if (next.reason === "IDLE") return left > 0 ? `${verb} if idle for ${duration(left)}` : `${verb} if idle`;
  return left > 0 ? `${verb} in ${duration(left)}` : `${verb} now`;
}

// When an instance ends; a start is no end.
export function endOf(next: Next | null | undefined): string | null {
  return next && next.action !== "START" ? next.at : null;
}
