"""One line on standard error that follows an operation."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import typer

from server.cli.user.exits import INTERRUPTED, TIMED_OUT, UNREACHABLE, fail
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
    from pilotlight_client import OperationFailed, Unreachable, WaitTimedOut
    from pilotlight_client.models import OperationStatus

    line, name = Line(), accepted.instance.name
    try:
        current = accepted.operation
        for current in client.follow(accepted.operation.id, timeout=timeout):
            line.write(describe(name, current, accepted.instance.lifetime))
        line.end()
        if current.status != OperationStatus.SUCCEEDED:
            raise OperationFailed(current)
    except (KeyboardInterrupt, WaitTimedOut, Unreachable) as ended:
        line.end()
        if not isinstance(ended, KeyboardInterrupt):
            typer.echo(f"pilotlight: {ended}", err=True)
        say_what_goes_on(client, (accepted, *also), is_reachable=not isinstance(ended, Unreachable))
        code = {"WaitTimedOut": TIMED_OUT, "Unreachable": UNREACHABLE}.get(type(ended).__name__, INTERRUPTED)
        raise typer.Exit(code) from None
    return client.get(accepted.instance.id)


def request(
    client: "Pilotlight",
    name: str,
    call: "Callable[[Pilotlight], Accepted]",
    *,
    before: "Sequence[Accepted]" = (),
) -> "Accepted":
    """The accepted request. After Ctrl-C before the response it is not known whether there is one.

    `before` are operations of the same command that were accepted already: they go on as well.
    """
    try:
        return call(client)
    except KeyboardInterrupt:
        shown = f"if it was accepted, it goes on; `pilotlight get {name}` shows it, and what it costs"
        ended = fail(f"interrupted before the response: {shown}", INTERRUPTED)
        say_what_goes_on(client, before)
        raise ended from None


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


def say_what_goes_on(client: "Pilotlight", all: "Sequence[Accepted]", *, is_reachable: bool = True) -> None:
    """Name operations that nothing ends, and what their instances cost now. A second Ctrl-C ends the reading."""
    from pilotlight_client import PilotlightError

    for accepted in all:
        current = None
        if is_reachable:
            try:
                current = client.get(accepted.instance.id)
            except (PilotlightError, KeyboardInterrupt):
                is_reachable = False
        _say(accepted, current)


def _say(accepted: "Accepted", current: "Instance | None") -> None:
    name = accepted.instance.name if current is None else current.name
    cost = "what it costs now is not known" if current is None else _cost(current)
    typer.echo(f"{accepted.operation.kind} of {name} goes on, {cost}.{_waiting(current)}", err=True)
    typer.echo(f"  watch it:  pilotlight wait {name}", err=True)
    if _waiting(current):
        typer.echo(f"  change it: pilotlight update-wait {name}", err=True)
    if accepted.operation.kind != "DELETE":
        typer.echo(f"  remove it: pilotlight rm {name}", err=True)


def _cost(instance: "Instance") -> str:
    if instance.machine_may_exist:
        return "may be billed: its machine is being searched for"
    if instance.is_billed:
        price = instance.price_per_hour
        return f"billed at {price} an hour" if price else "billed at a price that is not known"
    return "only its disk is billed now" if instance.novita_id and instance.deleted_at is None else "not billed now"


def _waiting(instance: "Instance | None") -> str:
    operation = None if instance is None else instance.open_operation
    if operation is None or operation.wait is None:
        return ""
    return f" It waits for capacity until {_time(operation.wait.until)}, for {until(operation.wait.until)} more."
