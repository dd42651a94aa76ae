// The lifetime of an instance: its next action, presets, and the GPUs’ utilisation in the last hour.
import { useState } from "preact/hooks";
import { requestWithRetry } from "../api/request.ts";
import { ExtendLifetime, type LifetimeChange, type LifetimeInput, SetLifetime } from "../generated/api.ts";
import { moment, span } from "../format.ts";
import type { Detail } from "../live/instance.ts";
import { PRESETS, presetInput } from "../live/lifetime.ts";
import { runMutation } from "../live/run-mutation.ts";
import { toast } from "../live/toasts.ts";
import { gpus, useUsage } from "../live/usage.ts";
import { may } from "../live/viewer.ts";
import { LineChart } from "../ui/line-chart.tsx";
import { Panel, Problem } from "../ui/parts.tsx";
import { Until } from "../ui/until.tsx";

const HOUR = 3600;
const OVER: ReadonlySet<Detail["status"]> = new Set(["DELETING", "DELETED"]);
const UP: ReadonlySet<Detail["status"]> = new Set(["RUNNING", "HEALTH_CHECKING", "READY"]);

export function LifetimePanel({ instance, refresh }: { instance: Detail; refresh: () => void }) {
  const { lifetime } = instance;
  const [isSending, setSending] = useState(false);
  if (OVER.has(instance.status)) return null;
  const send = async (mutate: Parameters<typeof runMutation>[0], succeeded?: string) => {
    setSending(true);
    await runMutation(mutate, { ...(succeeded && { succeeded }), rejected: "Lifetime not changed" });
    setSending(false);
    refresh();
  };
  const extend = () =>
    send(async () => (await requestWithRetry(ExtendLifetime, { input: { id: instance.id, by: HOUR } })).extendLifetime.errors, "Lifetime extended");
  const set = async (change: LifetimeChange) =>
    (await requestWithRetry(SetLifetime, { input: { id: instance.id, lifetime: change } })).updateInstance.errors;
  const change = (wanted: LifetimeChange) => {
    const before: LifetimeChange = lifetime ? { set: inputOf(lifetime) } : { remove: true };
    return send(async () => {
      const errors = await set(wanted);
      if (errors.length === 0) toast({ kind: "good", title: "Lifetime changed", undo: () => send(() => set(before), "Lifetime restored") });
      return errors;
    });
  };
  return (
    <Panel title="Lifetime" aside={lifetime?.next && <strong class="figures ends"><Until next={lifetime.next} /></strong>}>
      {lifetime ? <Limits lifetime={lifetime} /> : <p class="body muted">{UP.has(instance.status) ? "No limits: it runs, and is billed, until it is stopped." : "No limits."}</p>}
      {UP.has(instance.status) && instance.gpuCount > 0 && (
        <GpuChart id={instance.id} threshold={lifetime?.idle?.gpuBelowPercent ?? null} />
      )}
      {may("OPERATOR") && (
        <div class="body foot buttons">
          {lifetime && (
            <button type="button" class="button small" disabled={isSending} onClick={extend}>
              +1 h
            </button>
          )}
          {PRESETS.map(({ value, text }) => (
            <button
              key={value}
              type="button"
              class="button small"
              disabled={isSending || (value === "idle" && instance.gpuCount === 0)}
              onClick={() => change({ set: presetInput(value, Date.now()) })}
            >
              {text}
            </button>
          ))}
          {lifetime && (
            <button type="button" class="button small" disabled={isSending} onClick={() => change({ remove: true })}>
              No limit
            </button>
          )}
        </div>
      )}
    </Panel>
  );
}

function inputOf({ maxDuration, deadline, heartbeat, onEnd, idle, deleteAfterStopped, schedule, warnBefore }: NonNullable<Detail["lifetime"]>): LifetimeInput {
  return { maxDuration, deadline, heartbeat, onEnd, idle, deleteAfterStopped, schedule, warnBefore };
}

function Limits({ lifetime }: { lifetime: NonNullable<Detail["lifetime"]> }) {
  const { maxDuration, deadline, heartbeat, idle, deleteAfterStopped, schedule } = lifetime;
  const facts: [string, string][] = [];
  if (maxDuration !== null) facts.push(["Longest run", span(maxDuration * 1000)]);
  if (deadline !== null) facts.push(["Deadline", moment(deadline)]);
  if (heartbeat !== null) facts.push(["Heartbeat", `every ${span(heartbeat * 1000)} at most`]);
  if (idle !== null) facts.push(["Idle", `GPUs below ${idle.gpuBelowPercent} % for ${span(idle.window * 1000)}`]);
  if (deleteAfterStopped !== null) facts.push(["Deleted", `${span(deleteAfterStopped * 1000)} after a stop`]);
  if (schedule !== null) facts.push(["Schedule", [...schedule.start.map((each) => `start ${each}`), ...schedule.stop.map((each) => `stop ${each}`)].join(", ")]);
  return (
    <dl class="facts body">
      {facts.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}

function GpuChart({ id, threshold }: { id: string; threshold: number | null }) {
  const { metrics, problem } = useUsage(id);
  return (
    <div class="body gpu-chart">
      {problem && <Problem>{problem}</Problem>}
      <LineChart title="GPU utilisation" lines={gpus(metrics?.gpu)} threshold={threshold} />
    </div>
  );
}
