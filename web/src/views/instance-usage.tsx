// The usage tab: GPUs, their memory, CPU, memory and disk in the last hour.
import type { Detail } from "../live/instance.ts";
import { gpus, type Metrics, useUsage } from "../live/usage.ts";
import { type Line, LineChart } from "../ui/line-chart.tsx";
import { Empty, Panel, Problem } from "../ui/parts.tsx";
import { UP } from "./instance-overview.tsx";

export function UsageTab({ instance }: { instance: Detail }) {
  if (!UP.has(instance.status)) {
    return (
      <Empty icon="pulse" title="No usage now">
        <p>The provider measures running machines only. Start the instance to see its GPUs, CPU and memory here.</p>
      </Empty>
    );
  }
  return <Charts instance={instance} />;
}

function Charts({ instance }: { instance: Detail }) {
  const { metrics, problem } = useUsage(instance.id);
  const idle = instance.lifetime?.idle?.gpuBelowPercent ?? null;
  return (
    <Panel title="Usage" aside={<span class="muted">about a minute late, as the provider reports it</span>}>
      {problem && <Problem>{problem}</Problem>}
      <div class="charts">
        {instance.gpuCount > 0 && <LineChart title="GPU" lines={gpus(metrics?.gpu)} threshold={idle} />}
        {instance.gpuCount > 0 && <LineChart title="GPU memory" lines={gpus(metrics?.gpuMemory)} />}
        <LineChart title="CPU" lines={one("CPU", metrics?.cpu)} />
        <LineChart title="Memory" lines={one("Memory", metrics?.memory)} />
        <LineChart title="Root disk" lines={one("Root disk", metrics?.disk)} />
      </div>
      {instance.gpuCount > 0 && idle === null && (
        <p class="body muted foot">No idle limit is set. “Stop when idle for 30 min” in the overview adds one, and its line here.</p>
      )}
    </Panel>
  );
}

function one(name: string, points: Metrics["cpu"] | undefined): Line[] | null {
  return points ? [{ name, points }] : null;
}
