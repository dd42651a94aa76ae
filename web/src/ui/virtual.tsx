// A list of any length of which only what can be seen is there.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const AROUND = 8;

interface Props {
  count: number;
  label: string;
  head: ComponentChildren;
  // Instead of rows, when there are none.
  nothing: ComponentChildren;
  children: (place: number) => ComponentChildren;
}

export function Virtual({ count, label, head, nothing, children }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [span, setSpan] = useState({ from: 0, to: 40, height: 48 });

  const look = () => {
    const element = box.current;
    if (!element) return;
    // The style sheet decides how high a row is: it differs on phones.
    const height = Number.parseFloat(getComputedStyle(element).getPropertyValue("--row")) || 48;
    const from = Math.max(0, Math.floor(element.scrollTop / height) - AROUND);
    const to = Math.ceil((element.scrollTop + element.clientHeight) / height) + AROUND;
    setSpan((old) => (old.from === from && old.to === to && old.height === height ? old : { from, to, height }));
  };

  useLayoutEffect(look, [count]);
  useEffect(() => {
    const watcher = new ResizeObserver(look);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);

  // Up and down go from row to row; what is not there yet comes when it is scrolled to.
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
  for (let place = from; place < to; place++) lines.push(children(place));
  return (
    <div class="virtual" ref={box} onScroll={look} onKeyDown={onKey} tabIndex={-1}>
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
      {count === 0 && nothing}
    </div>
  );
}
