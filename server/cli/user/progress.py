"""One line on standard error that follows an operation."""

import os
import shutil
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

from server.cli.user.exits import INTERRUPTED
from server.cli.user.output import until

if TYPE_CHECKING:
    from pilotlight_client import Accepted, Pilotlight
    from pilotlight_client.models import Instance, Operation


def follow(client: "Pilotlight", accepted: "Accepted", *, timeout: timedelta | None) -> "Instance":
    """Wait for the end and show the way there. Ctrl-C ends the wait, not the operation."""
    from pilotlight_client import OperationFailed
    from pilotlight_client.models import OperationStatus

    line, name = Line(), accepted.instance.name
    try:
        current = accepted.operation
        for current in client.follow(accepted.operation.id, timeout=timeout):
            line.write(describe(name, current))
        line.end()
        if current.status != OperationStatus.SUCCEEDED:
            raise OperationFailed(current)
    except KeyboardInterrupt:
        _say_what_goes_on(client, accepted)
        raise typer.Exit(INTERRUPTED) from None
    return client.get(accepted.instance.id)


def describe(name: str, operation: "Operation") -> str:
    """Phase, progress, place in the line, the last refusal, and when it should be ready."""
    words = [f"{name}: {operation.kind} {operation.phase} {operation.progress} %"]
    if operation.queue is not None:
        words.append(f"number {operation.queue.position} in line")
    if operation.attempts:
        last = operation.attempts[-1]
        price = f" at {last.price_per_hour}/h" if last.price_per_hour else ""
        words.append(f"{last.region}{price}" + (f": {last.reason_code}" if last.reason_code else ""))
    if operation.last_error is not None:
        words.append(f"waits: {operation.last_error.code}")
    if operation.estimated_ready_at is not None and operation.finished_at is None:
        words.append(f"ready in about {until(operation.estimated_ready_at)}")
    return ", ".join(words)


class Line:
    """Rewritten in place on a terminal; elsewhere each new text is a line."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._last = ""

    def write(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        if self._is_live:
            columns = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\033[K{text[:columns]}")
            sys.stderr.flush()
        else:
            typer.echo(text, err=True)

    def end(self) -> None:
        if self._is_live and self._last:
            sys.stderr.write("\n")


def _say_what_goes_on(client: "Pilotlight", accepted: "Accepted") -> None:
    from pilotlight_client import PilotlightError

    name, cost = accepted.instance.name, ""
    try:
        current = client.get(accepted.instance.id)
        name = current.name
        cost = f", {current.price_per_hour} an hour" if current.price_per_hour else ", not billed yet"
    except PilotlightError:
        pass
    typer.echo(f"\n{accepted.operation.kind} of {name} goes on{cost}.", err=True)
    typer.echo(f"  watch it:  pilotlight wait {name}\n  remove it: pilotlight rm {name}", err=True)
