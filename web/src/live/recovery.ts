// The recovery of an instance as the values of a form, and as an input of the API.
import type { RecoveryBilling, RecoveryInput, RecoveryState, RecoveryTrigger, StartStep } from "../generated/api.ts";

export interface RecoveryDraft {
  readonly isOn: boolean;
  readonly on: readonly RecoveryTrigger[];
  readonly allowDataLoss: boolean;
  readonly steps: readonly StartStep[];
  readonly regions: string;
  readonly billing: RecoveryBilling;
  readonly hours: string; // until it gives up
  readonly replaceBeforeReclaim: boolean;
  readonly drain: string; // in seconds
}

export const STEPS: readonly { value: StartStep; text: string }[] = [
  { value: "SAME", text: "Start its machine again" },
  { value: "MIGRATE", text: "Migrate it to another node" },
  { value: "RELOCATE", text: "Make another machine, also in another region" },
];

// The server's defaults.
export const NO_RECOVERY: RecoveryDraft = {
  isOn: false,
  on: ["RECLAIM", "LOSS"],
  allowDataLoss: false,
  steps: ["SAME"],
  regions: "",
  billing: "SAME",
  hours: "24",
  replaceBeforeReclaim: false,
  drain: "60",
};

const HOUR = 3600;

export function recoveryDraft(recovery: Omit<RecoveryState, "incident"> | null): RecoveryDraft {
  if (!recovery) return NO_RECOVERY;
  const { on, allowDataLoss, steps, billing, replaceBeforeReclaim } = recovery;
  return {
    isOn: true,
    on,
    allowDataLoss,
    steps,
    regions: (recovery.regions ?? []).join(", "),
    billing,
    hours: String(Number((recovery.giveUpAfter / HOUR).toFixed(4))),
    replaceBeforeReclaim,
    drain: String(recovery.drain),
  };
}

// Whatever loses data on the machine's own disks needs that permission, and is offered with it.
export function withDataLoss(allowDataLoss: boolean): Partial<RecoveryDraft> {
  return allowDataLoss ? { allowDataLoss, steps: STEPS.map((step) => step.value) } : { allowDataLoss, steps: ["SAME"], replaceBeforeReclaim: false };
}

// Numbers that can't be read are sent as ones that the server refuses beside their field.
export function recoveryInput(draft: RecoveryDraft): RecoveryInput | null {
  if (!draft.isOn) return null;
  const { on, allowDataLoss, steps, billing, replaceBeforeReclaim } = draft;
  const regions = draft.regions.split(/[\s,]+/).filter(Boolean);
  return {
    on: [...on],
    allowDataLoss,
    steps: [...steps],
    regions: regions.length > 0 ? regions : null,
    billing,
    giveUpAfter: Math.round(Number(draft.hours.replace(",", ".")) * HOUR) || 0,
    replaceBeforeReclaim,
    drain: /^\s*\d+\s*$/.test(draft.drain) ? Number(draft.drain) : HOUR + 1,
  };
}
