// The steps of an operation, and when it reached each of them.
import type { OperationKind, OperationPhase } from "../generated/api.ts";
import type { Detail, Entry } from "./instance.ts";

const STEPS: Record<OperationKind, readonly OperationPhase[]> = {
  CREATE: ["WAITING", "PLACING", "PROVISIONING", "CHECKING_HEALTH"],
  START: ["WAITING", "STARTING", "PROVISIONING", "CHECKING_HEALTH"],
  RESTART: ["WAITING", "RESTARTING", "PROVISIONING", "CHECKING_HEALTH"],
  MIGRATE: ["WAITING", "MIGRATING", "PROVISIONING", "CHECKING_HEALTH"],
  STOP: ["WAITING", "STOPPING"],
  UPDATE: ["WAITING", "UPDATING"],
  DELETE: ["WAITING", "DELETING"],
};

const WORDS: Partial<Record<OperationPhase, string>> = {
  WAITING: "In line",
  PLACING: "Finding a machine",
  PROVISIONING: "Machine starts",
  CHECKING_HEALTH: "Health check",
};

export interface Step {
  readonly phase: OperationPhase;
  readonly text: string;
  readonly state: "done" | "current" | "ahead" | "failed" | "skipped";
  readonly began: string | null;
  readonly ended: string | null;
}

type Operation = Detail["operations"][number];

export function stepsOf(operation: Operation, entries: readonly Entry[]): Step[] {
  const phases = STEPS[operation.kind];
  const began = new Map<OperationPhase, string>([["WAITING", operation.createdAt]]);
  for (const entry of entries) {
    const seen = entry.operation;
    if (seen?.id === operation.id && !began.has(seen.phase)) began.set(seen.phase, entry.occurredAt);
  }
  const isOver = operation.finishedAt !== null;
  if (!isOver && !began.has(operation.phase)) began.set(operation.phase, operation.startedAt ?? operation.createdAt);
  const last = phases.reduce((found, phase, index) => (began.has(phase) ? index : found), 0);
  return phases.map((phase, index) => {
    const next = phases.slice(index + 1).find((each) => began.has(each));
    const ended = (next && began.get(next)) ?? operation.finishedAt;
    return {
      phase,
      text: WORDS[phase] ?? phase.charAt(0) + phase.slice(1).toLowerCase(),
      state: stateOf(index, last, began.has(phase), operation),
      began: began.get(phase) ?? null,
      ended: began.has(phase) ? ended : null,
    };
  });
}

function stateOf(index: number, last: number, wasSeen: boolean, operation: Operation): Step["state"] {
  if (index < last) return "done";
  if (operation.finishedAt === null) return index === last ? "current" : "ahead";
  if (operation.status === "SUCCEEDED") return wasSeen ? "done" : "skipped";
  return index === last ? "failed" : "skipped";
}
