// A table of any length that renders only the visible rows.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

// Rows rendered above and below the visible ones.
const OVERSCAN = 8;

interface Props {
  count: number;
  label: string;
  head: ComponentChildren;
  // Shown when there are no rows.
  empty: ComponentChildren;
  children: (index: number) => ComponentChildren;
}

export function VirtualTable({ count, label, head, empty, children }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [span, setSpan] = useState({ from: 0, to: 40, height: 48 });

  const measure = () => {
    const element = box.current;
    if (!element) return;
    // The row height comes from the style sheet: it differs on phones.
    const height = Number.parseFloat(getComputedStyle(element).getPropertyValue("--row")) || 48;
    const from = Math.max(0, Math.floor(element.scrollTop / height) - OVERSCAN);
    const to = Math.ceil((element.scrollTop + element.clientHeight) / height) + OVERSCAN;
    setSpan((old) => (old.from === from && old.to === to && old.height === height ? old : { from, to, height }));
  };

  useLayoutEffect(measure, [count]);
  useEffect(() => {
    const watcher = new ResizeObserver(measure);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);

  // The arrow keys move the focus from row to row; focusing scrolls, and scrolling renders more rows.
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const row = (event.target as HTMLElement).closest<HTMLElement>("[role=row]");
    if (step === 0 || !row) return;
    const kind = (event.target as HTMLElement).tagName;
    const next = step === 1 ? row.nextElementSibling : row.previousElementSibling;
    const target = next?.querySelector<HTMLElement>(kind === "INPUT" ? "input" : "a");
    if (!target) return;
    event.preventDefault();
    target.focus();
  };

  const to = Math.min(count, span.to);
  const from = Math.min(span.from, Math.max(0, to - 1));
  const lines: ComponentChildren[] = [];
  for (let index = from; index < to; index++) lines.push(children(index));
  return (
    <div class="virtual" ref={box} onScroll={measure} onKeyDown={onKey} tabIndex={-1}>
      <div role="table" aria-label={label} aria-rowcount={count + 1}>
        <div role="rowgroup" class="head-group">
          {head}
        </div>
        <div role="rowgroup">
          <div class="spacer" role="presentation" style={{ height: `${from * span.height}px` }} />
          {lines}
          <div class="spacer" role="presentation" style={{ height: `${Math.max(0, count - to) * span.height}px` }} />
        </div>
      </div>
      {count === 0 && empty}
    </div>
  );
}
