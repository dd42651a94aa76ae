"""`pilotlight market`, `pilotlight alert` and `pilotlight update-wait`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.cli.user import values
from server.cli.user.create import wait_input
from server.cli.user.exits import REFUSED, USAGE, connected, fail
from server.cli.user.output import Column, Format, age, show, show_one, until
from server.cli.user.reads import DETAILS, Name, Output

if TYPE_CHECKING:
    from pilotlight_client import Pilotlight

alerts = typer.Typer(no_args_is_help=True, help="Events when an offer is in stock.")

PRODUCT: Sequence[Column] = [
    ("PRODUCT", lambda each: each.name),
    ("REGION", lambda each: each.region.code),
    ("SPOT", lambda each: str(each.spot_price_per_gpu_hour or "")),
    ("ON DEMAND", lambda each: str(each.price_per_gpu_hour or "")),
    ("STOCK", lambda each: each.inventory or ("yes" if each.is_available else "none")),
]
WIDE: Sequence[Column] = [("ID", lambda each: each.id), ("VRAM GB", lambda each: str(each.vram_gb or ""))]
BUCKET: Sequence[Column] = [
    ("FROM", lambda each: each.from_.astimezone().isoformat(timespec="minutes")),
    ("LOWEST", lambda each: str(each.min or "")),
    ("HIGHEST", lambda each: str(each.max or "")),
    ("LAST", lambda each: str(each.last or "")),
    ("IN STOCK", lambda each: values.shown_duration(each.available_for)),
]
ALERT: Sequence[Column] = [
    ("ID", lambda each: each.id),
    ("PRODUCT", lambda each: ", ".join(each.product_names or ["any"])),
    ("GPUS", lambda each: str(each.gpu_count)),
    ("REGION", lambda each: ", ".join(each.regions or ["any"])),
    ("BILLING", lambda each: ", ".join(str(mode) for mode in each.billing_modes or ["any"])),
    ("AT MOST", lambda each: str(each.price_at_most or "any")),
    ("FIRED", lambda each: f"{age(each.last_fired_at)} ago" if each.last_fired_at else "not yet"),
]
MORE: Sequence[Column] = [
    ("WEBHOOK", lambda each: each.webhook_url or ""),
    ("ENDS", lambda each: f"in {until(each.expires_at)}" if each.expires_at else "never"),
]

Regions = Annotated[list[str] | None, typer.Option(help="Any of these regions.")]


def market(
    product: Annotated[str | None, typer.Argument(help="Part of a product name; the whole with --history.")] = None,
    region: Regions = None,
    available: Annotated[bool, typer.Option("--available", help="Only what is in stock.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Prices and stock of one product in one region.")] = False,
    billing: Annotated[str, typer.Option(help="With --history: SPOT or ON_DEMAND.")] = "SPOT",
    gpus: Annotated[int, typer.Option(help="With --history: number of GPUs.")] = 1,
    since: Annotated[str, typer.Option(help="With --history: a time, or a length such as 7d.")] = "1d",
    bucket: Annotated[str, typer.Option(help="With --history: the length of a line, such as 1h.")] = "1h",
    output: Output = None,
) -> None:
    """Show products with prices per GPU and hour, cheapest first."""
    if history:
        if product is None or region is None or len(region) != 1:
            raise fail("--history needs the whole name of a product, and one --region", USAGE)
        if output is Format.NAME:
            raise fail("a history has no names; choose another --output", USAGE)
        asked: dict[str, Any] = {
            "region": region[0],
            "billing_mode": values.word(billing, "--billing", "BillingMode"),
            "gpu_count": gpus,
            "since": values.since(since),
            "bucket": values.duration(bucket),
        }
        with connected() as client:
            show(client.offer_history(product, **asked), BUCKET, [], output)
        return
    filter: dict[str, Any] = {"name": product, "regions": region, "available_only": available}
    with connected() as client:
        products = client.products(**{name: value for name, value in filter.items() if value is not None})
        show(sorted(products, key=_cheapest), PRODUCT, WIDE, output)


def _cheapest(product: Any) -> float:
    prices = [price.amount_micros for price in (product.spot_price_per_gpu_hour, product.price_per_gpu_hour) if price]
    return min(prices, default=float("inf"))


def update_wait(
    name: Name,
    wait_for_capacity: Annotated[str | None, typer.Option(help="From now on, such as 2h, or until a time.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 to 100; the highest of the project goes first.")] = None,
    output: Output = None,
) -> None:
    """Change how long a create or start waits for capacity, or its priority."""
    given: dict[str, Any] = {
        "wait": None if wait_for_capacity is None else wait_input(wait_for_capacity),
        "priority": priority,
    }
    with connected() as client:
        client.update_wait(_open_operation(client, name), **given)
        show_one(client.get(name), DETAILS, output)


def _open_operation(client: "Pilotlight", name: str) -> str:
    operation = client.get(name).open_operation
    if operation is None:
        raise fail(f"{name} has no operation in progress", REFUSED)
    return operation.id


@alerts.command("create")
def create_alert(
    product: Annotated[list[str] | None, typer.Option(help="Whole product name; several times. Default: any.")] = None,
    region: Regions = None,
    billing: Annotated[str | None, typer.Option(help="SPOT or ON_DEMAND. Default: both.")] = None,
    gpus: Annotated[int, typer.Option(help="Number of GPUs of the machine.")] = 1,
    max_price: Annotated[str | None, typer.Option(help="Most dollars per hour of the whole machine.")] = None,
    held_for: Annotated[str | None, typer.Option(help="Only what stays for so long. Default: 30s.")] = None,
    cooldown: Annotated[str | None, typer.Option(help="Pause after it fired. Default: 1h.")] = None,
    expires: Annotated[str | None, typer.Option(help="Its end, such as 2026-12-24T18:00. Default: never.")] = None,
    webhook: Annotated[str | None, typer.Option(help="URL that gets its events.")] = None,
    output: Output = None,
) -> None:
    """Announce offers that match, as events of the project and to a webhook."""
    given: dict[str, Any] = {
        "product_names": product,
        "regions": region,
        "billing_modes": None if billing is None else [values.word(billing, "--billing", "BillingMode")],
        "price_at_most": None if max_price is None else values.price(max_price),
        "held_for": None if held_for is None else values.duration(held_for),
        "cooldown": None if cooldown is None else values.duration(cooldown),
        "expires_at": None if expires is None else values.time_of(expires),
        "webhook_url": webhook,
    }
    with connected() as client:
        made = client.create_alert(
            gpu_count=gpus, **{name: value for name, value in given.items() if value is not None}
        )
        show([made], ALERT, MORE, output)


@alerts.command("ls")
def list_alerts(output: Output = None) -> None:
    """List alerts."""
    with connected() as client:
        show(client.alerts(), ALERT, MORE, output)


@alerts.command("rm")
def remove_alert(id: Annotated[str, typer.Argument(help="Its id, of `pilotlight alert ls`.")]) -> None:
    """Remove an alert."""
    with connected() as client:
        client.delete_alert(id)
