"""`pilotlight create` and `pilotlight quote`."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.cli.user import values
from server.cli.user.exits import REFUSED, connected, fail
from server.cli.user.fields import read_fields
from server.cli.user.money import mounts
from server.cli.user.output import Column, Format, chosen, show, show_one, until
from server.cli.user.progress import follow, request
from server.cli.user.reads import DETAILS

if TYPE_CHECKING:
    from pilotlight_client import Pilotlight
    from pilotlight_client.models import Quote

Output = Annotated[Format | None, typer.Option("-o", "--output", help="Default: table on a terminal, else json.")]
Product = Annotated[str | None, typer.Option(help="Product name, such as 'RTX 4090 24GB'.")]
Image = Annotated[str | None, typer.Option(help="Container image.")]
Template = Annotated[str | None, typer.Option(help="Template id, instead of an image.")]
Gpus = Annotated[int | None, typer.Option(help="Number of GPUs, 1 to 8.")]
Cpu = Annotated[bool, typer.Option("--cpu", help="A machine without GPU; name a CPU product.")]
Region = Annotated[list[str] | None, typer.Option(help="Region to try; give it several times for an order.")]
Billing = Annotated[str | None, typer.Option(help="SPOT_THEN_ON_DEMAND, SPOT or ON_DEMAND.")]
MaxPrice = Annotated[str | None, typer.Option(help="Most dollars per hour of the whole instance.")]
Disk = Annotated[int | None, typer.Option(help="Root disk in GB.")]
File = Annotated[Path | None, typer.Option("-f", "--file", help="YAML or JSON with fields of the input.")]
Timeout = Annotated[str | None, typer.Option(help="How long to wait, such as 10m; then exit code 4.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as it is accepted.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
MaxDuration = Annotated[str | None, typer.Option(help="Longest run, such as 4h.")]
Deadline = Annotated[str | None, typer.Option(help="Fixed end, such as 2026-12-24T18:00.")]
Heartbeat = Annotated[str | None, typer.Option(help="Longest time without a heartbeat.")]
Idle = Annotated[str | None, typer.Option(help="End it when its GPUs are idle for so long.")]
OnEnd = Annotated[str | None, typer.Option(help="STOP or DELETE at the end of its lifetime.")]
Env = Annotated[list[str] | None, typer.Option("-e", "--env", help="NAME=VALUE; several times.")]
Label = Annotated[list[str] | None, typer.Option("-l", "--label", help="NAME=VALUE; several times.")]
Ports = Annotated[list[str] | None, typer.Option("-p", "--port", help="80 or 22/tcp; several times.")]


WaitForCapacity = Annotated[
    str | None, typer.Option(help="Without capacity, wait for it for so long, such as 2h, or until a time.")
]
Priority = Annotated[
    int | None, typer.Option(help="While it waits for capacity, 0 to 100: the highest of the project goes first.")
]

# A quote takes the other fields of a create.
ONLY_OF_CREATE = {"idempotency_key", "quote_id", "max_price_drift", "on_no_capacity"}


def create(
    name: Annotated[str | None, typer.Argument(help="Name; may stand in the file.")] = None,
    product: Product = None,
    image: Image = None,
    template: Template = None,
    gpus: Gpus = None,
    cpu: Cpu = False,
    region: Region = None,
    billing: Billing = None,
    max_price: MaxPrice = None,
    disk: Disk = None,
    env: Env = None,
    label: Label = None,
    port: Ports = None,
    volume: Annotated[list[str] | None, typer.Option(help="Network volume as NAME:/PATH; several times.")] = None,
    tool: Annotated[list[str] | None, typer.Option(help="SSH or JUPYTER; several times.")] = None,
    entrypoint: Annotated[str | None, typer.Option(help="Entrypoint instead of the image's.")] = None,
    command: Annotated[str | None, typer.Option(help="Start command.")] = None,
    registry_auth: Annotated[str | None, typer.Option(help="Id of a registry credential.")] = None,
    health_path: Annotated[str | None, typer.Option(help="Path that has to respond, such as /health.")] = None,
    webhook: Annotated[str | None, typer.Option(help="URL that gets its events.")] = None,
    max_duration: MaxDuration = None,
    deadline: Deadline = None,
    heartbeat: Heartbeat = None,
    idle: Idle = None,
    on_end: OnEnd = None,
    wait_for_capacity: WaitForCapacity = None,
    priority: Priority = None,
    quote_id: Annotated[
        str | None, typer.Option(help="Quote of the same request: its machine at its price, or none.")
    ] = None,
    max_price_drift: Annotated[float | None, typer.Option(help="With --quote-id: how much dearer, 0 to 1.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key never creates twice.")] = None,
    file: File = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check it and show the price; create nothing.")] = False,
    no_wait: NoWait = False,
    timeout: Timeout = None,
    yes: Yes = False,
    output: Output = None,
) -> None:
    """Create an instance and wait until it is READY."""
    given = _input(
        file,
        name=name,
        product=product,
        image=image,
        template_id=template,
        gpu_count=gpus,
        kind="CPU" if cpu else None,
        regions=region,
        billing=None if billing is None else values.word(billing, "--billing", "Billing"),
        max_hourly_price=None if max_price is None else values.price(max_price),
        rootfs_size_gb=disk,
        env=values.pairs(env),
        labels=values.pairs(label),
        ports=None if port is None else [values.port(each) for each in port],
        tools=None if tool is None else [{"name": values.word(each, "--tool", "ToolName")} for each in tool],
        entrypoint=entrypoint,
        command=command,
        registry_auth_id=registry_auth,
        health_check=None if health_path is None else {"path": health_path},
        webhook_url=webhook,
        lifetime=lifetime(max_duration, deadline, heartbeat, idle, on_end),
        on_no_capacity=on_no_capacity(wait_for_capacity, priority),
        quote_id=quote_id,
        max_price_drift=max_price_drift,
        idempotency_key=key,
    )
    _require(given, "name", "product", "image")
    wait = None if timeout is None else values.duration(timeout)
    with connected() as client:
        if volume is not None:
            given["volumes"] = mounts(client, volume)
        if dry_run:
            client.check(**given)
            _show_quote(_quote(client, given), output)
            return
        if sys.stdin.isatty() and sys.stdout.isatty() and not yes:
            _confirm(client, given)
        accepted = request(client, given["name"], lambda client: client.create(**given))
        instance = accepted.instance if no_wait else follow(client, accepted, timeout=wait)
        show_one(instance, DETAILS, output)


def quote(
    product: Product = None,
    image: Image = None,
    template: Template = None,
    gpus: Gpus = None,
    cpu: Cpu = False,
    region: Region = None,
    billing: Billing = None,
    max_price: MaxPrice = None,
    disk: Disk = None,
    max_duration: MaxDuration = None,
    deadline: Deadline = None,
    heartbeat: Heartbeat = None,
    idle: Idle = None,
    on_end: OnEnd = None,
    file: File = None,
    output: Output = None,
) -> None:
    """Show where an instance would be created and what it would cost."""
    given = _input(
        file,
        product=product,
        image=image,
        template_id=template,
        gpu_count=gpus,
        kind="CPU" if cpu else None,
        regions=region,
        billing=None if billing is None else values.word(billing, "--billing", "Billing"),
        max_hourly_price=None if max_price is None else values.price(max_price),
        rootfs_size_gb=disk,
        lifetime=lifetime(max_duration, deadline, heartbeat, idle, on_end),
    )
    _require(given, "product")
    with connected() as client:
        _show_quote(_quote(client, given), output)


def lifetime(
    max_duration: str | None, deadline: str | None, heartbeat: str | None, idle: str | None, on_end: str | None
) -> dict[str, Any] | None:
    """The limits of the options; None if there are none."""
    given: dict[str, Any] = {
        "max_duration": None if max_duration is None else values.duration(max_duration),
        "deadline": None if deadline is None else values.time_of(deadline),
        "heartbeat": None if heartbeat is None else values.duration(heartbeat),
        "idle": None if idle is None else {"window": values.duration(idle)},
        "on_end": None if on_end is None else values.word(on_end, "--on-end", "LifetimeAction"),
    }
    given = {name: value for name, value in given.items() if value is not None}
    return given or None


def on_no_capacity(wait: str | None, priority: int | None) -> dict[str, Any] | None:
    """What to do without capacity, of the options; None: fail."""
    if wait is None:
        if priority is not None:
            raise typer.BadParameter("--priority needs --wait-for-capacity")
        return None
    given: dict[str, Any] = {"wait": wait_input(wait)}
    return given if priority is None else {**given, "priority": priority}


def wait_input(text: str) -> dict[str, Any]:
    """2h, or a time such as 2026-12-24T18:00."""
    return {"until": values.time_of(text)} if "-" in text else {"for": values.duration(text)}


def _input(file: Path | None, **options: Any) -> dict[str, Any]:
    """The fields of the file, overridden by the options."""
    given = {} if file is None else read_fields(file)
    return {**given, **{name: value for name, value in options.items() if value is not None}}


def _require(given: dict[str, Any], *fields: str) -> None:
    said = {"name": "NAME", "product": "--product", "image": "--image or --template"}
    has_image = any(given.get(field) for field in ("image", "template_id", "source"))
    missing = [said[field] for field in fields if not (has_image if field == "image" else given.get(field))]
    if missing:
        raise typer.BadParameter(f"missing: {', '.join(missing)}")


def _quote(client: "Pilotlight", given: dict[str, Any]) -> "Quote":
    return client.quote(**{name: value for name, value in given.items() if name not in ONLY_OF_CREATE})


def _confirm(client: "Pilotlight", given: dict[str, Any]) -> None:
    offer = _quote(client, given)
    if offer.best is None and given.get("on_no_capacity"):
        typer.confirm(f"{given['name']}: nothing is in stock. Wait for it?", default=True, abort=True, err=True)
        return
    if offer.best is None:
        raise fail("no region can serve this now: `pilotlight quote` shows why", REFUSED)
    ends: dict[str, Any] = given.get("lifetime") or {}
    limit: Any = ends.get("max_duration")
    total = ""
    if isinstance(limit, timedelta) and offer.price_per_hour is not None:
        cost = float(offer.price_per_hour.amount) * limit.total_seconds() / 3600
        total = f", at most {cost:.2f} {offer.price_per_hour.currency} in {values.shown_duration(limit)}"
    where = f"{offer.best.region}, {offer.best.billing_mode}, {offer.price_per_hour} an hour{total}"
    typer.confirm(f"{given['name']}: {where}. Create?", default=True, abort=True, err=True)


def _show_quote(offer: "Quote", output: Format | None) -> None:
    match chosen(output):
        case Format.NAME:  # for --quote-id
            typer.echo(offer.quote_id)
        case Format.TABLE | Format.WIDE:
            show(offer.candidates, CANDIDATE, [("REASON", lambda each: each.reason_message or "")], output)
            most = f", at most {offer.max_cost} in all" if offer.max_cost else ""
            typer.echo(f"quote {offer.quote_id} holds for {until(offer.expires_at)}{most}")
        case _:
            show_one(offer, (), output)


CANDIDATE: list[Column] = [
    ("RANK", lambda each: str(each.rank)),
    ("REGION", lambda each: each.region),
    ("BILLING", lambda each: str(each.billing_mode or "")),
    ("PRICE/H", lambda each: str(each.price_per_hour or "")),
    ("RESULT", lambda each: "accepted" if each.accepted else str(each.reason_code)),
]
