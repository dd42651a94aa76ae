"""What people see while things start; machines that read JSON get the same as log lines."""

import sys
import time

import structlog
from rich.console import Console

log = structlog.get_logger(__name__)

# Progress is for people, so it goes where people look and never into a pipe that reads our answers.
console = Console(file=sys.stderr, highlight=False, soft_wrap=True)


def for_machines() -> None:
    """From now on only log lines: whoever asked for JSON wants to parse every line of it."""
    console.quiet = True


def tell(event: str, words: str, **facts: object) -> None:
    """Words for people, or else the same as one line of the log."""
    if console.quiet:
        log.info(event, **facts)
    else:
        console.print(words)


class step:
    """Says what is being started, and how long it took."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._began = time.monotonic()
        if console.is_terminal:
            console.print(f"  [dim]…[/dim] {self._name}", end="\r")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        took = time.monotonic() - self._began
        mark = "[green]✓[/green]" if kind is None else "[red]✗[/red]"
        words = f"  {mark} {self._name} [dim]{took:.1f} s[/dim]"
        tell("start.step", words, step=self._name, seconds=round(took, 3), is_well=kind is None)
