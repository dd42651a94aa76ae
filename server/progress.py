"""What people at a terminal see while things start."""

import sys
import time

from rich.console import Console

# Progress is for people, so it goes where people look and never into a pipe that reads our answers.
console = Console(file=sys.stderr, highlight=False, soft_wrap=True)


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
        console.print(f"  {mark} {self._name} [dim]{took:.1f} s[/dim]")
