"""One line on standard error that follows an operation."""

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import typer

from server.cli.user.exits import INTERRUPTED, TIMED_OUT
from server.cli.user.output import until
from server.cli.user.values import shown_duration

if TYPE_CHECKING:
    from pilotlight_client import Accepted, Pilotlight
    from pilotlight_client.models import Instance, Lifetime, Operation

ENDING = ("STOP", "DELETE")


def follow(
    client: "Pilotlight", accepted: "Accepted", *, timeout: timedelta | None, also: "Sequence[Accepted]" = ()
) -> "Instance":
    """Wait for the end and show the way there. Ctrl-C and a timeout end the wait, not the operation.

    `also` are other operations that are named then, because they go on as well.
    """
    from pilotlight_client import OperationFailed, WaitTimedOut
    from pilotlight_client.models import OperationStatus

    line, name = Line(), accepted.instance.name
    try:
        current = accepted.operation
        for current in client.follow(accepted.operation.id, timeout=timeout):
            line.write(describe(name, current, accepted.instance.lifetime))
        line.end()
        if current.status != OperationStatus.SUCCEEDED:
            raise OperationFailed(current)
    except (KeyboardInterrupt, WaitTimedOut) as ended:
        line.end()
        is_late = isinstance(ended, WaitTimedOut)
        if is_late:
            typer.echo(f"pilotlight: {ended}", err=True)
        for each in (accepted, *also):
            _say_what_goes_on(client, each)
        raise typer.Exit(TIMED_OUT if is_late else INTERRUPTED) from None
    return client.get(accepted.instance.id)


def describe(name: str, operation: "Operation", lifetime: "Lifetime | None" = None) -> str:
    """Phase, progress, place in the line, the last refusal, when it should be ready, and its next end."""
    words = [f"{name}: {operation.kind} {operation.phase} {operation.progress} %"]
    if operation.queue is not None:
        words.append(f"number {operation.queue.position} in line")
    if operation.wait is not None:
        words.append(f"waits for capacity until {_time(operation.wait.until)}: number {operation.wait.position}")
        words.append(str(operation.wait.blocked_by))
    if operation.attempts:
        last = operation.attempts[-1]
        price = f" at {last.price_per_hour}/h" if last.price_per_hour else ""
        words.append(f"{last.region}{price}" + (f": {last.reason_code}" if last.reason_code else ""))
    if operation.last_error is not None:
        words.append(f"waits: {operation.last_error.code}")
    if operation.estimated_ready_at is not None and operation.finished_at is None:
        words.append(f"ready in about {until(operation.estimated_ready_at)}")
    if lifetime is not None and operation.kind not in ENDING:
        words.extend(_next_end(lifetime))
    return ", ".join(words)


def _next_end(lifetime: "Lifetime") -> list[str]:
    if lifetime.next is not None:
        return [f"{lifetime.next.action} in {until(lifetime.next.at)}"]
    # The time of a run counts from its start, so before that only its length is known.
    return [f"{lifetime.on_end} after {shown_duration(lifetime.max_duration)}"] if lifetime.max_duration else []


def _time(at: datetime) -> str:
    return at.astimezone().isoformat(sep=" ", timespec="minutes")


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

    name, cost, waiting = accepted.instance.name, "", ""
    try:
        current = client.get(accepted.instance.id)
        name = current.name
        cost = f", billed at {current.price_per_hour} an hour" if current.price_per_hour else ", not billed now"
        if current.open_operation is not None and current.open_operation.wait is not None:
            ends = current.open_operation.wait.until
            waiting = f" It waits for capacity until {_time(ends)}, for {until(ends)} more."
    except PilotlightError:
        pass
    typer.echo(f"{accepted.operation.kind} of {name} goes on{cost}.{waiting}", err=True)
    typer.echo(f"  watch it:  pilotlight wait {name}", err=True)
    if waiting:
        typer.echo(f"  change it: pilotlight update-wait {name}", err=True)
    if accepted.operation.kind != "DELETE":
        typer.echo(f"  remove it: pilotlight rm {name}", err=True)
