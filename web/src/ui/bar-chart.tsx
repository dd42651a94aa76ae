// Amounts by day as stacked bars, in plain SVG.
import { money } from "../format.ts";
import type { Bar } from "../live/bars.ts";

const HEIGHT = 160;
const SLOT = 20;
const GAP = 4;
const STEPS = [1, 2, 2.5, 5, 10];

export function BarChart({ bars, nameOf }: { bars: readonly Bar[]; nameOf: (key: string | null) => string }) {
  const top = roundUp(Math.max(...bars.map((bar) => bar.total), 10_000));
  const height = (micros: number) => (micros / top) * HEIGHT;
  const width = bars.length * SLOT;
  const dearest = bars.reduce((one, other) => (other.total > one.total ? other : one));
  const summary = `Spend by day, ${bars[0]?.day} to ${bars.at(-1)?.day}. Most on ${dearest.day}: ${dollars(dearest.total)}.`;
  return (
    <figure class="bar-chart body">
      <div class="plot">
        <svg viewBox={`0 0 ${width} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={summary}>
          {[0.5, 1].map((part) => (
            <line key={part} class="grid" x1={0} x2={width} y1={HEIGHT * (1 - part)} y2={HEIGHT * (1 - part)} />
          ))}
          {bars.map((bar, index) => {
            let below = 0;
            return (
              <g key={bar.day}>
                {bar.parts.map((part) => {
                  below += part.micros;
                  return (
                    <rect
                      key={part.key}
                      class={`series-${part.series}`}
                      x={index * SLOT + GAP / 2}
                      width={SLOT - GAP}
                      y={HEIGHT - height(below)}
                      height={Math.max(0.5, height(part.micros))}
                    >
                      <title>{`${bar.day}, ${nameOf(part.key)}: ${dollars(part.micros)} of ${dollars(bar.total)}`}</title>
                    </rect>
                  );
                })}
              </g>
            );
          })}
        </svg>
        <span class="scale" aria-hidden="true">
          <i>{dollars(top)}</i>
          <i>{dollars(top / 2, top)}</i>
          <i>0</i>
        </span>
      </div>
      <figcaption class="days muted" aria-hidden="true">
        <span>{bars[0]?.day}</span>
        <span>{bars[Math.floor(bars.length / 2)]?.day}</span>
        <span>today (UTC)</span>
      </figcaption>
    </figure>
  );
}

function dollars(micros: number, largest = micros): string {
  return money({ amountMicros: micros, currency: "USD" }, largest >= 100_000_000 ? 0 : 2);
}

// The next of 1, 2, 2.5, 5 times a power of ten.
export function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return (STEPS.find((step) => step * power >= value) ?? 10) * power;
}
