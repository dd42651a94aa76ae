// Percentages of the last hour as lines, in plain SVG.
export interface Line {
  readonly name: string;
  readonly points: readonly { readonly at: string; readonly percent: number }[];
}

const HOUR = 3_600_000;
const WIDTH = 300;
const HEIGHT = 72;

export function LineChart({ title, lines, threshold }: { title: string; lines: readonly Line[] | null; threshold?: number | null }) {
  const until = Date.now();
  const x = (at: string) => WIDTH + ((Date.parse(at) - until) / HOUR) * WIDTH;
  const y = (percent: number) => HEIGHT - (Math.min(100, percent) / 100) * HEIGHT;
  const shown = (lines ?? []).filter((line) => line.points.length > 0);
  const name = (line: Line) => (shown.length > 1 ? `${line.name}: ` : "");
  const last = (line: Line) => `${Math.round(line.points.at(-1)?.percent ?? 0)}\u00a0%`;
  const latest = shown.map((line) => name(line) + last(line)).join(", ");
  return (
    <figure class="line-chart">
      <div class="plot">
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${title}, last hour. ${latest ? `Now ${latest}` : "No values"}`}>
          <line class="grid" x1={0} x2={WIDTH} y1={HEIGHT / 2} y2={HEIGHT / 2} />
          {typeof threshold === "number" && <line class="threshold" x1={0} x2={WIDTH} y1={y(threshold)} y2={y(threshold)} />}
          {shown.map((line, index) => (
            <polyline
              key={line.name}
              class={`series-${index % 6}`}
              // Twice, so that the only value of a new machine is a dot.
              points={[...line.points.slice(0, 1), ...line.points].map((point) => `${x(point.at).toFixed(1)},${y(point.percent).toFixed(1)}`).join(" ")}
            />
          ))}
        </svg>
        <span class="scale" aria-hidden="true">
          <i>100 %</i>
          <i>50</i>
          <i>0</i>
        </span>
      </div>
      <figcaption class="muted">
        <span>
          {title}, last hour
          {lines === null ? ": reading …" : shown.length === 0 ? ": no values yet" : ": "}
          {shown.map((line, index) => (
            <span key={line.name} class="short">
              {index > 0 && ", "}
              {shown.length > 1 && <i class={`swatch series-${index % 6}`} />}
              {name(line)}
              {last(line)}
            </span>
          ))}
          {typeof threshold === "number" && ` · idle below ${threshold} %`}
        </span>
      </figcaption>
    </figure>
  );
}
