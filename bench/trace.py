"""A picture of one create, from a real run: an API, a worker, a simulator and a receiver of webhooks, each a process.

    make trace-picture

writes docs/trace-of-a-create.svg. What is drawn is what a collector of OpenTelemetry traces was sent.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from server.db.embedded.server import EmbeddedPostgres
from tests.flows.deployment import deployment
from tests.support.otel_collector import Span
from tests.support.waiting import until

PICTURE = Path(__file__).parents[1] / "docs" / "trace-of-a-create.svg"
CALLERS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = CALLERS.split("-")[1]
# Slow enough for the provider's part to be seen, quick enough to see the rest.
SPEED = "10"

WIDTH, LABELS, ROW, TOP = 1240, 340, 19, 80
CHART = WIDTH - LABELS - 90
COLOURS = {
    "request": "#2f6fde",
    "job": "#5b4bb5",
    "db": "#9aa4b2",
    "novita": "#d9822b",
    "probe": "#2e9e6b",
    "webhook": "#c2416b",
}
MEANING = {
    "request": "the request (API)",
    "job": "a run of a job (worker)",
    "db": "a transaction",
    "novita": "a call to the provider",
    "probe": "a probe of the endpoint",
    "webhook": "a delivery to the receiver",
}


@dataclass(frozen=True)
class Bar:
    span: Span
    depth: int

    @property
    def sort(self) -> str:
        first = self.span.name.split(" ")[0].split(".")[0]
        return first if first in COLOURS else "request"


async def record() -> list[Span]:
    """All spans of one create, from the request to the last webhook."""
    with tempfile.TemporaryDirectory(prefix="pilotlight-trace-") as folder:
        async with (
            EmbeddedPostgres(Path(folder) / "home") as running,
            deployment(running.url, Path(folder), SIMULATOR_SPEED=SPEED) as on,
        ):
            # The first one fills the caches and prepares the statements; people are interested in the second.
            await on.until_delivered(await on.create("warm"))
            created = await on.create("pictured", traceparent=CALLERS)
            await on.until_delivered(created)

            def all_sent() -> bool:
                places = [got.headers["traceparent"].split("-") for got in on.receiver.got]
                sent = {place[2] for place in places if place[1] == TRACE}
                return sent <= {each.id for each in on.collector.spans}

            await until(all_sent, within=30)
            await asyncio.sleep(1)  # the jobs that sent them have to end, and their spans to be sent
            return on.collector.of_trace(TRACE)


def draw(spans: Sequence[Span]) -> str:
    idle = _only_waited(spans)
    bars = [bar for bar in _in_order(spans) if bar.span.id not in idle]
    began = min(each.start for each in spans)
    whole = max(each.end for each in spans) - began
    height = TOP + ROW * len(bars) + 60
    processes = len({each.process for each in spans})
    left_out = f"; {len(idle)} of deliveries that found others before them are left out" if idle else ""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif"'
        f' font-size="12" role="img" aria-label="One createInstance as a trace of {len(spans)} spans">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="16" font-weight="600" fill="#1b1f24">One createInstance: {len(spans)} spans in'
        f" {processes} processes, {whole * 1000:.0f} ms</text>",
        f'<text x="16" y="46" fill="#57606a">trace {TRACE}, continued from the caller\'s traceparent and handed on'
        f" to the receiver{left_out}</text>",
        *_axis(whole, height),
    ]
    for number, bar in enumerate(bars):
        out += _row(bar, TOP + number * ROW, began, whole)
    out += [*_legend(height), "</svg>"]
    return "\n".join(out) + "\n"


def _only_waited(spans: Sequence[Span]) -> set[str]:
    """Job runs that found an earlier delivery pending and were rescheduled, and their child spans."""
    sending = {each.parent_id for each in spans if each.name == "webhook.send"}
    idle = {each.id for each in spans if each.name == "job SEND_WEBHOOK" and each.id not in sending}
    return idle | {each.id for each in spans if each.parent_id in idle}


def _in_order(spans: Sequence[Span]) -> list[Bar]:
    """Each below its parent, in the order in which they began. What a job enqueued stands beside it, not below the
    transaction that enqueued it: the story would otherwise lean further and further to the right."""
    by_id = {each.id: each for each in spans}

    def depth(span: Span) -> int:
        parent = by_id.get(span.parent_id)
        if parent is None:
            return 0
        return 1 if span.name.startswith("job ") else depth(parent) + 1

    def owner(span: Span) -> Span:
        """The request or the run of a job that a span is part of."""
        parent = by_id.get(span.parent_id)
        return span if parent is None or span.name.startswith("job ") else owner(parent)

    parts = sorted({owner(each).id for each in spans}, key=lambda one: by_id[one].start)
    return [
        Bar(each, depth(each))
        for part in parts
        for each in sorted((s for s in spans if owner(s).id == part), key=lambda s: (s.start, -s.end))
    ]


def _axis(whole: float, height: int) -> list[str]:
    step = next(each for each in (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60) if whole / each <= 12)
    found: list[str] = []
    for number in range(int(whole / step) + 1):
        x = LABELS + CHART * number * step / whole
        found.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 52}" stroke="#e6e9ed"/>')
        found.append(
            f'<text x="{x + 3:.1f}" y="{TOP - 8}" font-size="10" fill="#8b949e">{number * step * 1000:g} ms</text>'
        )
    return found


def _row(bar: Bar, y: int, began: float, whole: float) -> list[str]:
    span = bar.span
    x = LABELS + CHART * (span.start - began) / whole
    width = max(1.5, CHART * (span.end - span.start) / whole)
    weight = ' font-weight="600"' if bar.depth <= 1 and bar.sort in ("request", "job") else ""
    label = _duration_label(span)
    is_room = x + width + 5 + 5.6 * len(label) < WIDTH
    place = f'x="{x + width + 5:.1f}"' if is_room else f'x="{x - 5:.1f}" text-anchor="end"'
    lines = [
        f'<text x="{16 + 14 * bar.depth}" y="{y + 13}" fill="#1b1f24"{weight}>{escape(span.name)}</text>',
        f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{ROW - 7}" rx="2" fill="{COLOURS[bar.sort]}"/>',
        f'<text {place} y="{y + 13}" font-size="10" fill="#57606a">{label}</text>',
    ]
    if weight:
        lines.insert(0, f'<rect x="8" y="{y}" width="{WIDTH - 16}" height="{ROW}" fill="#f4f6f8"/>')
    return lines


def _duration_label(span: Span) -> str:
    milliseconds = (span.end - span.start) * 1000
    shown = f"{milliseconds:.1f} ms"
    waited = span.attributes.get("pilotlight.waited_ms")
    if waited is not None:
        shown += f", claimed {waited:g} ms after it was due"
    return shown


def _legend(height: int) -> list[str]:
    found: list[str] = []
    x = 16.0
    for sort, colour in COLOURS.items():
        found.append(f'<rect x="{x:.0f}" y="{height - 32}" width="12" height="12" rx="2" fill="{colour}"/>')
        found.append(f'<text x="{x + 18:.0f}" y="{height - 22}" fill="#57606a">{MEANING[sort]}</text>')
        x += 40 + 6.4 * len(MEANING[sort])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=PICTURE)
    to: Path = parser.parse_args().to
    spans = asyncio.run(record())
    to.write_text(draw(spans))
    print(f"{len(spans)} spans of {len({each.process for each in spans})} processes are in {to}")
    for each in spans:
        at, taken = each.start - spans[0].start, each.end - each.start
        print(f"  {at * 1000:8.1f} ms  {taken * 1000:8.1f} ms  {each.name}")


if __name__ == "__main__":
    main()
