"""`pilotlight spend`, `pilotlight budget` and `pilotlight volume`."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.cli.user import values
from server.cli.user.exits import REFUSED, USAGE, connected, fail
from server.cli.user.output import Column, Format, chosen, show, show_one
from server.cli.user.reads import Output

if TYPE_CHECKING:
    from pilotlight_client import Pilotlight
    from pilotlight_client.models import SpendReport

IDS_MAX = 100  # in one filter

budgets = typer.Typer(no_args_is_help=True, help="Limits of what is spent.")
volumes = typer.Typer(no_args_is_help=True, help="Network volumes.")

BUDGET: Sequence[Column] = [
    ("NAME", lambda each: each.name),
    ("PERIOD", lambda each: str(each.period)),
    ("LIMIT", lambda each: str(each.limit)),
    ("SPENT", lambda each: str(each.spent)),
    ("COMMITTED", lambda each: str(each.committed)),
    ("LEFT", lambda each: str(each.remaining)),
    ("ACTION", lambda each: str(each.action)),
    ("STATE", lambda each: str(each.state)),
]
VOLUME: Sequence[Column] = [
    ("NAME", lambda each: each.name),
    ("REGION", lambda each: each.region),
    ("SIZE", lambda each: f"{each.size_gb} GB"),
    ("STATUS", lambda each: str(each.status)),
    ("PRICE/H", lambda each: str(each.price_per_hour or "")),
]
ID: Sequence[Column] = [("ID", lambda each: each.id)]


def spend(
    by: Annotated[str, typer.Option(help="day, instance, product, region, token, or label=NAME.")] = "day",
    since: Annotated[str | None, typer.Option(help="A time, or a length such as 7d. Default: this month.")] = None,
    output: Output = None,
) -> None:
    """Show what was spent."""
    group, _, label = by.partition("=")
    if group not in ("day", "instance", "product", "region", "token", "label"):
        raise fail(f"{by!r} is no group; use day, instance, product, region, token or label=NAME", USAGE)
    if (group == "label") != bool(label):
        raise fail("only a label has a name: --by label=NAME", USAGE)
    filter: dict[str, Any] = {"since": _start(since)}
    with connected() as client:
        report = client.spend(group_by=group.upper(), label_key=label or None, **filter)  # pyright: ignore[reportArgumentType]
        if chosen(output) in (Format.TABLE, Format.WIDE):
            names = _names(client, group, report)
            columns: Sequence[Column] = [
                (group.upper(), lambda each: names.get(each.key, each.key or "-")),
                ("AMOUNT", lambda each: str(each.amount)),
                ("PAID", lambda each: values.shown_duration(each.paid_time)),
            ]
            show(report.groups, columns, [], Format.TABLE)
            typer.echo(f"total {report.total}")
        else:
            show_one(report, [], output)


def _names(client: "Pilotlight", group: str, report: "SpendReport") -> dict[str, str]:
    """By id, of the instances and tokens that still have one; a token's needs ADMIN."""
    from pilotlight_client import Forbidden
    from pilotlight_client.models import InstanceStatus

    ids = [each.key for each in report.groups if each.key]
    if group == "instance":
        parts = [ids[at : at + IDS_MAX] for at in range(0, len(ids), IDS_MAX)]
        return {each.id: each.name for part in parts for each in client.list(ids=part, statuses=list(InstanceStatus))}
    try:
        return {each.id: each.name for each in client.tokens()} if group == "token" else {}
    except Forbidden:
        return {}


def _start(since: str | None) -> datetime:
    if since is None:
        return datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return values.since(since)


@budgets.command("ls")
def list_budgets(output: Output = None) -> None:
    """List budgets with what is spent and left."""
    with connected() as client:
        show(client.budgets(), BUDGET, ID, output)


@budgets.command("create")
def create_budget(
    name: Annotated[str, typer.Argument(help="Name.")],
    limit: Annotated[str, typer.Argument(help="Dollars per period.")],
    period: Annotated[str, typer.Option(help="DAY, WEEK, MONTH or TOTAL.")] = "MONTH",
    label: Annotated[str | None, typer.Option(help="Only instances with NAME=VALUE. Default: all.")] = None,
    action: Annotated[str, typer.Option(help="NOTIFY, BLOCK, STOP or DELETE.")] = "BLOCK",
    output: Output = None,
) -> None:
    """Limit what is spent; needs ADMIN."""
    key, value = values.pair(label) if label else ("", "")
    scope: dict[str, Any] = {"label": {"key": key, "value": value}} if label else {"project": True}
    given: dict[str, Any] = {
        "period": values.word(period, "--period", "BudgetPeriod"),
        "action": values.word(action, "--action", "BudgetAction"),
        "scope": scope,
    }
    with connected() as client:
        show([client.create_budget(name=name, limit=values.price(limit), **given)], BUDGET, ID, output)


@budgets.command("rm")
def remove_budget(name: Annotated[str, typer.Argument(help="Name or id.")]) -> None:
    """Remove a budget; needs ADMIN."""
    with connected() as client:
        client.delete_budget(_one(client.budgets(), name).id)


@volumes.command("ls")
def list_volumes(output: Output = None) -> None:
    """List network volumes."""
    with connected() as client:
        show(client.volumes(), VOLUME, ID, output)


@volumes.command("create")
def create_volume(
    name: Annotated[str, typer.Argument(help="Name.")],
    region: Annotated[str, typer.Option(help="Region, such as AS-SGP-02.")],
    size: Annotated[int, typer.Option(help="Size in GB.")],
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key never creates twice.")] = None,
    output: Output = None,
) -> None:
    """Create a network volume; it is billed until it is deleted."""
    with connected() as client:
        made = client.create_volume(name=name, region=region, size_gb=size, idempotency_key=key)
        show([made], VOLUME, ID, output)


@volumes.command("grow")
def grow_volume(
    name: Annotated[str, typer.Argument(help="Name or id.")],
    size: Annotated[int, typer.Argument(help="New size in GB.")],
    output: Output = None,
) -> None:
    """Enlarge a network volume."""
    with connected() as client:
        show([client.update_volume(_one(client.volumes(), name).id, size_gb=size)], VOLUME, ID, output)


@volumes.command("rm")
def remove_volume(name: Annotated[str, typer.Argument(help="Name or id.")], output: Output = None) -> None:
    """Delete a network volume with its data."""
    with connected() as client:
        show([client.delete_volume(_one(client.volumes(), name).id)], VOLUME, ID, output)


def mounts(client: "Pilotlight", texts: list[str]) -> list[dict[str, str]]:
    """NAME:/PATH as the volumes of an instance; a volume is given by its name or id."""
    parts = [text.partition(":") for text in texts]
    if wrong := next((text for text, part in zip(texts, parts, strict=True) if not part[0] or not part[2]), None):
        raise typer.BadParameter(f"{wrong!r} is not a volume; write NAME:/PATH")
    found = list(client.volumes())
    return [{"id": _one(found, name).id, "mount_path": path} for name, _, path in parts]


def _one(items: Iterable[Any], name: str) -> Any:
    found = [each for each in items if name in (each.id, each.name)]
    if len(found) != 1:
        many = f"{len(found)} have the name {name!r}; use an id" if found else f"there is no {name!r}"
        raise fail(many, REFUSED)
    return found[0]
