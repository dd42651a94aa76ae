// Utilisation of a machine in the last hour, read again every minute.
import { useEffect, useState } from "preact/hooks";
import { messageOf, request } from "../api/request.ts";
import { Usage, type UsageResult } from "../generated/api.ts";
import type { Line } from "../ui/line-chart.tsx";

export type Metrics = NonNullable<UsageResult["instanceMetrics"]>;
const NONE: Metrics = { gpu: [], gpuMemory: [], cpu: [], memory: [], disk: [] };
const REFRESH = 60_000;

export function gpus(found: Metrics["gpu"] | undefined): Line[] | null {
  return found?.map((gpu) => ({ name: `GPU ${gpu.gpuId}`, points: gpu.points })) ?? null;
}

export function useUsage(id: string): { metrics: Metrics | null; problem: string | null } {
  const [metrics, setMetrics] = useState<Metrics | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const load = () =>
      request(Usage, { id }, abort.signal)
        .then(({ instanceMetrics }) => {
          setMetrics(instanceMetrics ?? NONE);
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
  return { metrics, problem };
}
