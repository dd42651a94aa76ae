// Status and health marks. Each tone has its own shape, so that colour is not needed to tell them apart.
import type { ComponentChildren } from "preact";
import { words } from "../format.ts";
import type { HealthStatus, InstanceStatus } from "../generated/api.ts";

export type Tone = "good" | "active" | "warning" | "off" | "bad";

const TONES: Record<InstanceStatus, Tone> = {
  CREATING: "active",
  STARTING: "active",
  RUNNING: "active",
  HEALTH_CHECKING: "active",
  RESTARTING: "active",
  MIGRATING: "active",
  READY: "good",
  STOPPING: "warning",
  DELETING: "warning",
  EXITED: "off",
  DELETED: "off",
  FAILED: "bad",
};

const SHAPES: Record<Tone, ComponentChildren> = {
  good: <circle cx="6" cy="6" r="4.5" class="fill" />,
  active: (
    <>
      <circle cx="6" cy="6" r="4" class="faint" />
      <path d="M6 2a4 4 0 0 1 4 4" class="line turning" />
    </>
  ),
  warning: (
    <>
      <circle cx="6" cy="6" r="4" class="line" />
      <path d="M6 2a4 4 0 0 1 0 8z" class="fill" />
    </>
  ),
  off: <rect x="2.5" y="2.5" width="7" height="7" rx="1.5" class="line" />,
  bad: <path d="M6 1.2L11.2 10.4H.8z" class="fill" />,
};

export function toneOf(status: InstanceStatus): Tone {
  return TONES[status];
}

export function Shape({ tone }: { tone: Tone }) {
  return (
    <svg class="shape" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
      {SHAPES[tone]}
    </svg>
  );
}

export function Chip({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`chip ${tone}`}>
      <Shape tone={tone} />
      {children}
    </span>
  );
}

export function StatusChip({ status }: { status: InstanceStatus }) {
  return <Chip tone={TONES[status]}>{words(status)}</Chip>;
}

const REASONS: Readonly<Record<string, string>> = { WAITING_FOR_CAPACITY: "waits for capacity", RECOVERING: "recovering" };

// What the status alone does not say.
export function StatusTags({ statusReason, isDegraded }: { statusReason: string | null; isDegraded: boolean }) {
  const reason = REASONS[statusReason ?? ""];
  return (
    <>
      {isDegraded && <span class="tag">degraded</span>}
      {reason && <span class="tag">{reason}</span>}
    </>
  );
}

const HEALTH: Record<HealthStatus, Tone> = { HEALTHY: "good", PARTIAL: "warning", UNHEALTHY: "bad" };

export function HealthMark({ health }: { health: HealthStatus | null }) {
  if (health === null) return <span class="muted">–</span>;
  return (
    <span class={`mark ${HEALTH[health]}`}>
      <Shape tone={HEALTH[health]} />
      {words(health)}
    </span>
  );
}
