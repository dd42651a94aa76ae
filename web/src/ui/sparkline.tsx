// A price over time as a line, and below it when it was in stock, in plain SVG.
export interface SparkPoint {
  readonly price: number | null; // null: not in stock
  readonly stock: number; // the part of its time that it was in stock, 0 to 1
}

const WIDTH = 300;
const HEIGHT = 44;
const STOCK = 6;

export function Sparkline({ label, points }: { label: string; points: readonly SparkPoint[] }) {
  const prices = points.flatMap((point) => (point.price === null ? [] : [point.price]));
  const low = Math.min(...prices);
  const range = Math.max(...prices) - low;
  const step = WIDTH / Math.max(1, points.length);
  const y = (price: number) => (range === 0 ? HEIGHT / 2 : HEIGHT - 3 - ((price - low) / range) * (HEIGHT - 6));
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT + STOCK + 2}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {linesOf(points).map((line) => (
        <polyline
          key={line[0]?.index}
          class="series-0"
          // Each price lasts until the next: also a single one is a line.
          points={line.map(({ index, price }) => `${(index * step).toFixed(1)},${y(price).toFixed(1)} ${((index + 1) * step).toFixed(1)},${y(price).toFixed(1)}`).join(" ")}
        />
      ))}
      {points.map(
        (point, index) =>
          point.stock > 0 && <rect key={index} class="stock" x={index * step} y={HEIGHT + 2} width={step} height={STOCK} opacity={0.25 + point.stock * 0.75} />,
      )}
    </svg>
  );
}

// The parts of the line: it is interrupted where there was no price.
export function linesOf(points: readonly SparkPoint[]): { index: number; price: number }[][] {
  const lines: { index: number; price: number }[][] = [];
  let isOpen = false;
  points.forEach(({ price }, index) => {
    if (price === null) {
      isOpen = false;
      return;
    }
    if (!isOpen) lines.push([]);
    lines.at(-1)?.push({ index, price });
    isOpen = true;
  });
  return lines;
}
