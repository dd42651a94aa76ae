// The lifetime of an instance: its next action, presets, and the GPUs’ utilisation in the last hour.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request, requestWithRetry } from "../api/request.ts";
import { ExtendLifetime, GpuMetrics, type GpuMetricsResult, type LifetimeChange, SetLifetime } from "../generated/api.ts";
import { duration, moment } from "../format.ts";
import type { Detail } from "../live/instance.ts";
import { PRESETS, presetInput } from "../live/lifetime.ts";
import { runMutation } from "../live/run-mutation.ts";
import { may } from "../live/viewer.ts";
import { Panel } from "../ui/parts.tsx";
import { Until } from "../ui/until.tsx";

const HOUR = 3600;
const OVER: ReadonlySet<Detail["status"]> = new Set(["DELETING", "DELETED"]);
const UP: ReadonlySet<Detail["status"]> = new Set(["RUNNING", "HEALTH_CHECKING", "READY"]);

export function LifetimePanel({ instance, refresh }: { instance: Detail; refresh: () => void }) {
  const { lifetime } = instance;
  const [isSending, setSending] = useState(false);
  if (OVER.has(instance.status)) return null;
  const send = async (mutate: Parameters<typeof runMutation>[0], succeeded: string) => {
    setSending(true);
    await runMutation(mutate, { succeeded, rejected: "Lifetime not changed" });
    setSending(false);
    refresh();
  };
  const extend = () =>
    send(async () => (await requestWithRetry(ExtendLifetime, { input: { id: instance.id, by: HOUR } })).extendLifetime.errors, "Lifetime extended");
  const change = (lifetime: LifetimeChange) =>
    send(async () => (await requestWithRetry(SetLifetime, { input: { id: instance.id, lifetime } })).updateInstance.errors, "Lifetime changed");
  return (
    <Panel title="Lifetime" aside={lifetime?.next && <strong class="figures ends"><Until next={lifetime.next} /></strong>}>
      {lifetime ? <Limits lifetime={lifetime} /> : <p class="body muted">No limits: it runs, and is billed, until it is stopped.</p>}
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

function Limits({ lifetime }: { lifetime: NonNullable<Detail["lifetime"]> }) {
  const { maxDuration, deadline, heartbeat, idle, deleteAfterStopped, schedule } = lifetime;
  const facts: [string, string][] = [];
  if (maxDuration !== null) facts.push(["Longest run", duration(maxDuration * 1000)]);
  if (deadline !== null) facts.push(["Deadline", moment(deadline)]);
  if (heartbeat !== null) facts.push(["Heartbeat", `every ${duration(heartbeat * 1000)} at most`]);
  if (idle !== null) facts.push(["Idle", `GPUs below ${idle.gpuBelowPercent} % for ${duration(idle.window * 1000)}`]);
  if (deleteAfterStopped !== null) facts.push(["Deleted", `${duration(deleteAfterStopped * 1000)} after a stop`]);
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

type Gpus = NonNullable<GpuMetricsResult["instanceMetrics"]>["gpu"];
const REFRESH = 60_000;
const WIDTH = 300;
const HEIGHT = 72;

function GpuChart({ id, threshold }: { id: string; threshold: number | null }) {
  const [gpus, setGpus] = useState<Gpus | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const load = () =>
      request(GpuMetrics, { id }, abort.signal)
        .then(({ instanceMetrics }) => {
          setGpus(instanceMetrics?.gpu ?? []);
          setProblem(null);
        })
        .catch((error: unknown) => abort.signal.aborted || setProblem(messageOf(error)));
    void load();
    const timer = setInterval(load, REFRESH);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [id]);
  const until = Date.now();
  const x = (at: string) => WIDTH + ((Date.parse(at) - until) / (HOUR * 1000)) * WIDTH;
  const y = (percent: number) => HEIGHT - (Math.min(100, percent) / 100) * HEIGHT;
  const count = gpus?.reduce((sum, gpu) => sum + gpu.points.length, 0) ?? 0;
  return (
    <figure class="body gpu-chart">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label="GPU utilisation in the last hour">
        {threshold !== null && <line class="threshold" x1={0} x2={WIDTH} y1={y(threshold)} y2={y(threshold)} />}
        {(gpus ?? []).map((gpu) => (
          <polyline key={gpu.gpuId} points={gpu.points.map((point) => `${x(point.at).toFixed(1)},${y(point.percent).toFixed(1)}`).join(" ")} />
        ))}
      </svg>
      <figcaption class="muted">
        {problem ?? (gpus === null ? "Reading metrics …" : count === 0 ? "No metrics yet." : "GPU utilisation, last hour")}
        {threshold !== null && !problem && ` · idle below ${threshold} %`}
      </figcaption>
    </figure>
  );
}
