"""Progress output: text on a terminal, log lines when logs are JSON."""

import sys
import time

import structlog
from rich.console import Console

log = structlog.get_logger(__name__)

# Standard error: standard output is for results that a script may read from a pipe.
console = Console(file=sys.stderr, highlight=False, soft_wrap=True)


def log_only() -> None:
    """Print nothing but log lines, so that every line of the output is JSON."""
    console.quiet = True


def report_progress(event: str, text: str, **fields: object) -> None:
    """Print the text, or log the event with its fields if only log lines are printed."""
    if console.quiet:
        log.info(event, **fields)
    else:
        console.print(text)


class step:
    """Prints a step of the start, and how long it took."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._began = time.monotonic()
        if console.is_terminal:
            console.print(f"  [dim]…[/dim] {self._name}", end="\r")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        took = time.monotonic() - self._began
        mark = "[green]✓[/green]" if kind is None else "[red]✗[/red]"
        text = f"  {mark} {self._name} [dim]{took:.1f} s[/dim]"
        report_progress("start.step", text, step=self._name, seconds=round(took, 3), is_well=kind is None)
