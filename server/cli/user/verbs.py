"""Commands that change instances: start, stop, restart, move, rm, update, extend."""

import fnmatch
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.cli.user import values
from server.cli.user.create import (
    Deadline,
    Heartbeat,
    Idle,
    Label,
    MaxDuration,
    NoWait,
    OnEnd,
    Ports,
    Priority,
    Timeout,
    WaitForCapacity,
    Yes,
    lifetime,
    on_no_capacity,
)
from server.cli.user.exits import FAILED, REFUSED, USAGE, connected, fail
from server.cli.user.output import Format, show, show_one
from server.cli.user.progress import follow, request
from server.cli.user.reads import COLUMNS, DETAILS, WIDE, Name, Output, complete_name

if TYPE_CHECKING:
    from pilotlight_client import Accepted, Pilotlight
    from pilotlight_client.models import Instance

Names = Annotated[list[str], typer.Argument(help="Names or ids; * and ? match several.", autocompletion=complete_name)]
GONE = ("DELETED", "DELETING")


def start(
    name: Name,
    wait_for_capacity: WaitForCapacity = None,
    priority: Priority = None,
    no_wait: NoWait = False,
    timeout: Timeout = None,
    output: Output = None,
) -> None:
    """Start a stopped instance."""
    without = on_no_capacity(wait_for_capacity, priority)
    given: dict[str, Any] = {} if without is None else {"on_no_capacity": without}
    _act(name, lambda client: client.start(name, **given), no_wait=no_wait, timeout=timeout, output=output)


def restart(name: Name, no_wait: NoWait = False, timeout: Timeout = None, output: Output = None) -> None:
    """Restart an instance."""
    _act(name, lambda client: client.restart(name), no_wait=no_wait, timeout=timeout, output=output)


def move(name: Name, no_wait: NoWait = False, timeout: Timeout = None, output: Output = None) -> None:
    """Migrate an instance to another node of its region; the data on its disk is lost."""
    _act(name, lambda client: client.migrate(name), no_wait=no_wait, timeout=timeout, output=output)


def stop(
    names: Names, yes: Yes = False, no_wait: NoWait = False, timeout: Timeout = None, output: Output = None
) -> None:
    """Stop instances; their disks are kept and billed."""
    how = How(yes, no_wait, timeout, output)
    _act_on_all(names, "stop", lambda id, client: client.stop(id), how)


def rm(names: Names, yes: Yes = False, no_wait: NoWait = False, timeout: Timeout = None, output: Output = None) -> None:
    """Delete instances with all data on their disks."""
    how = How(yes, no_wait, timeout, output)
    _act_on_all(names, "delete", lambda id, client: client.delete(id), how)


def update(
    name: Name,
    new_name: Annotated[str | None, typer.Option("--name", help="New name.")] = None,
    label: Label = None,
    port: Ports = None,
    disk: Annotated[int | None, typer.Option(help="Larger root disk in GB.")] = None,
    webhook: Annotated[str | None, typer.Option(help="URL that gets its events; empty removes it.")] = None,
    max_duration: MaxDuration = None,
    deadline: Deadline = None,
    heartbeat: Heartbeat = None,
    idle: Idle = None,
    on_end: OnEnd = None,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Remove the limits of its lifetime.")] = False,
    no_wait: NoWait = False,
    timeout: Timeout = None,
    output: Output = None,
) -> None:
    """Change an instance."""
    limits = lifetime(max_duration, deadline, heartbeat, idle, on_end)
    change: dict[str, Any] = {
        "name": new_name,
        "labels": values.pairs(label),
        "ports": None if port is None else [values.port(each) for each in port],
        "rootfs_size_gb": disk,
        "webhook": None if webhook is None else ({"url": webhook} if webhook else {"remove": True}),
        "lifetime": {"remove": True} if no_limits else (None if limits is None else {"set": limits}),
    }
    change = {field: value for field, value in change.items() if value is not None}
    if not change:
        raise fail("nothing to change; `pilotlight update --help` lists what can be", USAGE)
    _act(name, lambda client: client.update(name, **change), no_wait=no_wait, timeout=timeout, output=output)


def extend(
    name: Name,
    by: Annotated[str | None, typer.Argument(help="Time to add, such as 1h.")] = None,
    until: Annotated[str | None, typer.Option(help="New end, such as 2026-12-24T18:00.")] = None,
    output: Output = None,
) -> None:
    """Move the end of an instance's lifetime."""
    if (by is None) == (until is None):
        raise fail("give either a time to add, such as 1h, or --until", USAGE)
    with connected() as client:
        added = None if by is None else values.duration(by)
        instance = client.extend(name, by=added, until=None if until is None else values.time_of(until))
        show_one(instance, DETAILS, output)


def _act(
    name: str,
    call: "Callable[[Pilotlight], Accepted]",
    *,
    no_wait: bool,
    timeout: str | None,
    output: Format | None,
) -> None:
    limit = None if timeout is None else values.duration(timeout)
    with connected() as client:
        accepted = request(client, name, call)
        instance = accepted.instance if no_wait else follow(client, accepted, timeout=limit)
        show_one(instance, DETAILS, output)


@dataclass(frozen=True, slots=True)
class How:
    """The options of a verb on several instances."""

    yes: bool
    no_wait: bool
    timeout: str | None
    output: Format | None


def _act_on_all(names: list[str], verb: str, call: "Callable[[str, Pilotlight], Accepted]", how: How) -> None:
    """Each is requested before any is waited for; one that is refused does not keep the others from it."""
    from pilotlight_client import OperationFailed, Refused

    limit = None if how.timeout is None else values.duration(how.timeout)
    code = 0
    with connected() as client:
        found = _matching(client, names)
        _confirm(found, names, verb, yes=how.yes)
        accepted: list[Accepted] = []
        for instance in found:
            try:
                accepted.append(request(client, instance.name, partial(call, instance.id), before=accepted))
            except Refused as refused:
                typer.echo(f"pilotlight: {instance.name}: {refused}", err=True)
                code = REFUSED
        results: list[Instance] = []
        for at, each in enumerate(accepted, 1):
            try:
                also = accepted[at:]
                results.append(each.instance if how.no_wait else follow(client, each, timeout=limit, also=also))
            except OperationFailed as failed:
                typer.echo(f"pilotlight: {each.instance.name}: {failed}", err=True)
                code = FAILED
        show(results, COLUMNS, WIDE, how.output)
    if code:
        raise typer.Exit(code)


def _matching(client: "Pilotlight", names: list[str]) -> "list[Instance]":
    """By name or id, or all whose names match a pattern."""
    found: dict[str, Instance] = {}
    for name in names:
        if not any(sign in name for sign in "*?["):
            instance = client.get(name)
            found[instance.id] = instance
            continue
        matching = [each for each in client.list() if fnmatch.fnmatchcase(each.name, name) and each.status not in GONE]
        if not matching:
            raise fail(f"no instance matches {name!r}", REFUSED)
        found |= {each.id: each for each in matching}
    return list(found.values())


def _confirm(found: "list[Instance]", names: list[str], verb: str, *, yes: bool) -> None:
    """On a terminal it is asked; elsewhere, a pattern needs --yes."""
    if yes:
        return
    is_pattern = any(sign in name for name in names for sign in "*?[")
    shown = ", ".join(each.name for each in found)
    if sys.stdin.isatty() and sys.stdout.isatty():
        if verb == "delete" or is_pattern:
            disks = "its disk" if len(found) == 1 else "their disks"
            lost = f" with the data on {disks}" if verb == "delete" else ""
            typer.confirm(f"{verb} {shown}{lost}?", abort=True, err=True)
    elif is_pattern:
        raise fail(f"{verb} {shown}: a pattern needs --yes when it is not confirmed on a terminal", USAGE)
