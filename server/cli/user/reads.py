"""Commands that read: ls, get, watch, events, logs, wait."""

import difflib
import fnmatch
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.cli.user import values
from server.cli.user.exits import connected
from server.cli.user.output import Column, Format, age, chosen, plain, show, show_one, until

if TYPE_CHECKING:
    from pilotlight_client import Pilotlight
    from pilotlight_client.models import Instance, InstanceEvent

Output = Annotated[Format | None, typer.Option("-o", "--output", help="Default: table on a terminal, else json.")]


def complete_name(incomplete: str) -> list[str]:
    """Names of instances, for the completion of a shell; none if the server can't be asked."""
    from pilotlight_client import Pilotlight, PilotlightError

    try:
        with Pilotlight(retry_for=0.0) as client:
            found = client.list(name_starts_with=incomplete) if incomplete else client.list()
            return [each.name for each in found]
    except PilotlightError:
        return []


Name = Annotated[str, typer.Argument(help="Name or id of an instance.", autocompletion=complete_name)]


def _ends(instance: Any) -> str:
    step = instance.lifetime and instance.lifetime.next
    return f"{step.action} in {until(step.at)}" if step else ""


COLUMNS: Sequence[Column] = [
    ("NAME", lambda each: each.name),
    ("STATUS", lambda each: str(each.status)),
    ("PRODUCT", lambda each: f"{each.gpu_count} x {each.product_name}" if each.gpu_count else each.product_name),
    ("REGION", lambda each: each.region or ""),
    ("PRICE/H", lambda each: str(each.price_per_hour or "")),
    ("ENDS", _ends),
    ("AGE", lambda each: age(each.created_at)),
]
WIDE: Sequence[Column] = [
    ("ID", lambda each: each.id),
    ("BILLING", lambda each: str(each.billing_mode or "")),
    ("HEALTH", lambda each: str(each.health.status) if each.health else ""),
    ("REASON", lambda each: each.status_reason or ""),
    ("LABELS", lambda each: ",".join(f"{key}={value}" for key, value in each.labels.items())),
    ("ENDPOINTS", lambda each: " ".join(endpoint.address for endpoint in each.endpoints)),
]
DETAILS: Sequence[Column] = [
    *(COLUMNS[:6]),
    *WIDE,
    ("IMAGE", lambda each: each.image),
    ("CREATED", lambda each: f"{each.created_at.isoformat()} ({age(each.created_at)} ago)"),
    ("READY IN", lambda each: until(each.estimated_ready_at) if each.ready_at is None else ""),
    ("OPERATION", lambda each: _operation(each)),
    ("FAILURE", lambda each: f"{each.failure.code}: {each.failure.message}" if each.failure else ""),
    ("EXIT", lambda each: f"{each.exit.code}: {each.exit.message}" if each.exit else ""),
    ("MACHINE MAY EXIST", lambda each: "yes, it is being searched for" if each.machine_may_exist else ""),
]


def _operation(instance: Any) -> str:
    operation = instance.open_operation
    return f"{operation.kind} {operation.phase} {operation.progress} %" if operation else ""


def ls(
    pattern: Annotated[str | None, typer.Argument(help="Name with * and ?; default: all.")] = None,
    status: Annotated[list[str] | None, typer.Option("-s", "--status", help="Any of these statuses.")] = None,
    label: Annotated[list[str] | None, typer.Option("-l", "--label", help="NAME=VALUE; several times.")] = None,
    region: Annotated[list[str] | None, typer.Option(help="Any of these regions.")] = None,
    output: Output = None,
) -> None:
    """List instances, newest first."""
    filter: dict[str, Any] = {
        "statuses": None if status is None else [values.word(each, "--status", "InstanceStatus") for each in status],
        "labels": values.pairs(label),
        "regions": region,
    }
    with connected() as client:
        found = client.list(**{name: value for name, value in filter.items() if value is not None})
        show(
            (each for each in found if pattern is None or fnmatch.fnmatchcase(each.name, pattern)),
            COLUMNS,
            WIDE,
            output,
        )


def get(name: Name, output: Output = None) -> None:
    """Show one instance."""
    with connected() as client:
        show_one(client.get(name), DETAILS, output)


def wait(
    name: Name,
    timeout: Annotated[str | None, typer.Option(help="How long to wait, such as 10m; then exit code 4.")] = None,
    output: Output = None,
) -> None:
    """Wait until the operation of an instance has ended."""
    from server.cli.user.progress import follow

    limit = None if timeout is None else values.duration(timeout)
    with connected() as client:
        instance = client.get(name)
        if instance.open_operation is not None:
            instance = follow(client, _accepted(instance), timeout=limit)
        show_one(instance, DETAILS, output)


def _accepted(instance: "Instance") -> Any:
    from pilotlight_client import Accepted

    assert instance.open_operation is not None
    return Accepted(instance, instance.open_operation, replayed=False)


def watch(name: Name, output: Output = None) -> None:
    """Show an instance after every change, until it is deleted."""
    with connected() as client:
        for instance in client.watch(name):
            if chosen(output) in (Format.TABLE, Format.WIDE):
                words = [str(instance.status), instance.status_reason or "", _operation(instance), _ends(instance)]
                typer.echo(f"{instance.updated_at.isoformat()}  {'  '.join(word for word in words if word)}")
            else:
                typer.echo(json.dumps(plain(instance)))


def events(
    name: Annotated[str | None, typer.Argument(help="Name or id of an instance; default: all.")] = None,
    after: Annotated[str | None, typer.Option(help="Cursor to continue after.")] = None,
    type: Annotated[list[str] | None, typer.Option(help="Any of these types, such as instance.ready.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--past", "-f", help="From now on, or those that are stored.")
    ] = True,
    output: Output = None,
) -> None:
    """Follow the event log, or show what is stored: every event once, in order."""
    for each in type or ():
        _check_type(each)
    with connected() as client:
        filter: dict[str, Any] = {} if type is None else {"types": type}
        names = dict[str, str]()  # by id: not every event has the name
        if name is not None:
            instance = client.get(name)
            filter["ids"], names[instance.id] = [instance.id], instance.name
        found = client.events(after=after, **filter) if follow else _past(client, after, filter)
        for event in found:
            if chosen(output) in (Format.TABLE, Format.WIDE):
                if event.instance_snapshot is not None:
                    names[event.instance_id] = event.instance_snapshot.name
                who = names.get(event.instance_id, event.instance_id)
                details = " ".join(f"{key}={value}" for key, value in event.data.items())
                typer.echo(f"{event.occurred_at.isoformat()}  {who}  {event.type}  {details}".rstrip())
            else:
                typer.echo(json.dumps(plain(event)))


def _past(client: "Pilotlight", after: str | None, filter: dict[str, Any]) -> "Iterator[InstanceEvent]":
    while True:
        page, cursor = client.event_page(after=after, **filter)
        yield from page
        if not page or cursor is None:
            return
        after = cursor


def _check_type(given: str) -> None:
    """A misspelled type, or one that is not of instances, would be waited for in vain."""
    from server.events.event import PROJECT_EVENTS, EventType

    known = [each.value for each in EventType if each not in PROJECT_EVENTS]
    if given not in known:
        near = difflib.get_close_matches(given, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise typer.BadParameter(f"instances have no event type {given!r}; {hint}")


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is added.")] = False,
    system: Annotated[bool, typer.Option("--system", help="The machine's log, not the container's.")] = False,
    tail: Annotated[int, typer.Option(help="Number of last lines; with -f, at most 200.")] = 200,
) -> None:
    """Print the log of an instance."""
    if follow and not 0 <= tail <= 200:
        raise typer.BadParameter("with -f, --tail is 0 to 200")
    which = "SYSTEM" if system else "CONTAINER"
    with connected() as client:
        if not follow:
            typer.echo(client.log(name, which=which, tail=tail), nl=False)
            return
        for part in client.follow_log(name, which=which, tail=tail):
            typer.echo(part, nl=False)
