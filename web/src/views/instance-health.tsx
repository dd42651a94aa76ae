// Past health checks of an instance, one bar each, as high as it took. A check with the same result as the one before is not recorded.
import { count, moment, words } from "../format.ts";
import type { HealthStatus } from "../generated/api.ts";
import type { Entry } from "../live/instance.ts";
import type { Tone } from "../ui/chip.tsx";

const TONES: Record<HealthStatus, Tone> = { HEALTHY: "good", PARTIAL: "warning", UNHEALTHY: "bad" };
const MOST_CHECKS = 60;
const HEIGHT = 28;

export function HealthHistory({ entries }: { entries: readonly Entry[] }) {
  const checks = entries.filter((entry) => entry.health !== null && entry.health.endpoints.length > 0).slice(-MOST_CHECKS);
  if (checks.length < 2) return null;
  const latencies = checks.map((entry) => Math.max(...(entry.health?.endpoints ?? []).map((each) => each.latency)));
  const highest = Math.max(...latencies, 0.001);
  const healthy = checks.filter((entry) => entry.health?.status === "HEALTHY").length;
  const summary = `${healthy} of the last ${count(checks.length, "recorded check")} healthy, slowest ${Math.round(highest * 1000)} ms`;
  return (
    <figure class="body health-history">
      <svg viewBox={`0 0 ${checks.length * 6} ${HEIGHT}`} height={HEIGHT} role="img" aria-label={summary}>
        {checks.map((entry, index) => {
          const status = entry.health?.status ?? "UNHEALTHY";
          const height = Math.max(3, ((latencies[index] ?? 0) / highest) * HEIGHT);
          return (
            <rect key={entry.id} class={TONES[status]} x={index * 6} y={HEIGHT - height} width={4} height={height} rx={1}>
              <title>{`${moment(entry.occurredAt)}: ${words(status).toLowerCase()}, ${Math.round((latencies[index] ?? 0) * 1000)} ms`}</title>
            </rect>
          );
        })}
      </svg>
      <figcaption class="muted">{summary}</figcaption>
    </figure>
  );
}
