"""The MCP server: thirteen tools on the Python client."""

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings as TransportSecuritySettings
from mcp_types import ToolAnnotations
from pilotlight_client import AsyncRequests
from pydantic import Field

from server.error_codes import help_of
from server.mcp.problems import problem, with_refusals
from server.mcp.strict import StrictServer
from server.mcp.views import (
    AcceptedView,
    CandidateView,
    CreatedView,
    EventsView,
    EventView,
    InstancesView,
    InstanceView,
    LogView,
    OfferView,
    OperationView,
    QuoteView,
    SpendPartView,
    SpendView,
    WaitView,
)

WAIT_MAX = 45.0  # seconds; clients give up on a call after a minute
LIST_MAX = 100
LOG_LINES_MAX = 500
INSTRUCTIONS = (
    "Pilotlight rents GPU instances. Quote first, create with a lifetime, call wait_for until the operation is over, "
    "and delete what you no longer need: a running instance is billed. Writes take operation_key: create a UUID for "
    "each thing you want done, and reuse it when you retry, so that it is done once."
)

Connect = Callable[[Context[Any, Any]], AsyncRequests]

Key = Annotated[str, Field(min_length=1, max_length=255, description="Create a UUID; reuse it when you retry.")]
Instance = Annotated[str, Field(description="Name or id of an instance.")]
Product = Annotated[str, Field(description="Product name, such as 'RTX 4090 24GB'; see find_offers.")]
Gpus = Annotated[int, Field(ge=1, le=8)]
Regions = Annotated[list[str] | None, Field(description="Regions to try, in order; default: any.")]
Billing = Literal["SPOT_THEN_ON_DEMAND", "SPOT", "ON_DEMAND"]

READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
DESTROYS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True)


def build_server(connect: Connect, *, version: str, require_lifetime: bool) -> StrictServer:
    """`connect` gives the client for one call; what it refuses is the result `isError`."""
    server = StrictServer("pilotlight", version=version, instructions=INSTRUCTIONS)
    tools = Tools(connect, require_lifetime=require_lifetime)
    listed: list[tuple[Callable[..., Coroutine[Any, Any, Any]], str, ToolAnnotations]] = [
        (tools.find_offers, "Find products with prices and stock", READS),
        (tools.quote, "Price and place of an instance", READS),
        (tools.create_instance, "Create an instance", WRITES),
        (tools.get_instance, "Show an instance", READS),
        (tools.list_instances, "List instances", READS),
        (tools.wait_for, "Wait for an operation", READS),
        (tools.start_instance, "Start a stopped instance", WRITES),
        (tools.stop_instance, "Stop an instance; its disk is kept and billed", WRITES),
        (tools.delete_instance, "Delete an instance with its data", DESTROYS),
        (tools.extend_lifetime, "Move the end of an instance", WRITES),
        (tools.get_events, "Read past events", READS),
        (tools.get_log, "Read the log of an instance", READS),
        (tools.get_spend, "What was spent", READS),
    ]
    for call, title, annotations in listed:
        server.add_tool(with_refusals(call), title=title, annotations=annotations)
    return server


class Tools:
    """Each method is a tool; its docstring is what an agent reads."""

    def __init__(self, connect: Connect, *, require_lifetime: bool) -> None:
        self._connect = connect
        self._require_lifetime = require_lifetime

    async def find_offers(
        self,
        ctx: Context[Any, Any],
        name: Annotated[str | None, Field(description="Part of a product name, such as 4090.")] = None,
        in_stock_only: bool = True,
    ) -> list[OfferView]:
        """Products by region with prices per GPU and hour, cheapest first."""
        filter: dict[str, Any] = {"available_only": in_stock_only, **({"name": name} if name else {})}
        found = await self._connect(ctx).products(**filter)
        offers = [
            OfferView(
                product=each.name,
                region=each.region.code,
                spot_price_per_gpu_hour=_shown(each.spot_price_per_gpu_hour),
                price_per_gpu_hour=_shown(each.price_per_gpu_hour),
                in_stock=each.is_available or each.is_spot_available,
                vram_gb=each.vram_gb,
            )
            for each in sorted(found, key=_cheapest)
        ]
        return offers[:LIST_MAX]

    async def quote(
        self,
        ctx: Context[Any, Any],
        product: Product,
        gpu_count: Gpus = 1,
        regions: Regions = None,
        billing: Billing = "SPOT_THEN_ON_DEMAND",
    ) -> QuoteView:
        """Where an instance would be created and what it would cost. Creates nothing."""
        offer = await self._connect(ctx).quote(**_request(product, gpu_count, regions, billing))
        return QuoteView(
            price_per_hour=_shown(offer.price_per_hour),
            candidates=[
                CandidateView(
                    region=each.region,
                    billing_mode=None if each.billing_mode is None else str(each.billing_mode),
                    price_per_hour=_shown(each.price_per_hour),
                    accepted=each.accepted,
                    reason=each.reason_message,
                )
                for each in offer.candidates
            ],
        )

    async def create_instance(
        self,
        ctx: Context[Any, Any],
        operation_key: Key,
        name: Annotated[str, Field(description="Unique among the project's instances.")],
        product: Product,
        image: Annotated[str, Field(description="Container image.")],
        gpu_count: Gpus = 1,
        regions: Regions = None,
        billing: Billing = "SPOT_THEN_ON_DEMAND",
        max_duration_seconds: Annotated[int | None, Field(ge=300, description="Longest run.")] = None,
        on_end: Literal["STOP", "DELETE"] = "DELETE",
        idle_minutes: Annotated[
            int | None, Field(ge=5, description="End it when its GPUs are idle for so long.")
        ] = None,
        max_price_per_hour: Annotated[
            Decimal | None, Field(gt=0, decimal_places=6, description="USD per hour, all GPUs.")
        ] = None,
        ports: Annotated[list[int] | None, Field(description="HTTP ports to expose.")] = None,
        env: Annotated[dict[str, str] | None, Field(description="Environment variables.")] = None,
        command: str | None = None,
        labels: dict[str, str] | None = None,
    ) -> CreatedView:
        """Create an instance. It is billed from its start until it is stopped or its lifetime ends."""
        client = self._connect(ctx)
        longest: float | None = max_duration_seconds
        if longest is None:
            # The project's default is sent as if it were given: alone, `on_end` would not be accepted.
            default = (await client.lifetime_policy()).default_max_duration
            longest = None if default is None else default.total_seconds()
            if longest is None and self._require_lifetime:
                code, message = "LIFETIME_REQUIRED", "Give max_duration_seconds: how long may it run at most?"
                raise ToolError(problem(code, message, path=["max_duration_seconds"], remedy=help_of(code)))
        lifetime: dict[str, Any] = {"on_end": on_end}
        if longest is not None:
            lifetime["max_duration"] = longest
        if idle_minutes is not None:
            lifetime["idle"] = {"window": idle_minutes * 60, "action": on_end}
        request = _request(product, gpu_count, regions, billing)
        given: dict[str, Any] = {
            "name": name,
            "image": image,
            "lifetime": lifetime if len(lifetime) > 1 else None,
            "max_hourly_price": max_price_per_hour,
            "ports": None if ports is None else [{"port": port} for port in ports],
            "env": env,
            "command": command,
            "labels": labels,
            "idempotency_key": operation_key,
        }
        accepted = await client.create(
            **request, **{field: value for field, value in given.items() if value is not None}
        )
        return CreatedView(
            **AcceptedView.of(accepted).model_dump(),
            max_cost=await _max_cost(client, request, max_price_per_hour, accepted.instance),
        )

    async def get_instance(self, ctx: Context[Any, Any], instance: Instance) -> InstanceView:
        """One instance with its status, price, endpoints and end."""
        return InstanceView.of(await self._connect(ctx).get(instance))

    async def list_instances(
        self,
        ctx: Context[Any, Any],
        statuses: Annotated[list[str] | None, Field(description="Such as READY, EXITED, FAILED.")] = None,
        labels: dict[str, str] | None = None,
        limit: Annotated[int, Field(ge=1, le=LIST_MAX)] = 20,
    ) -> InstancesView:
        """Instances, newest first."""
        words = [each.upper() for each in statuses or ()]
        filter: dict[str, Any] = {"statuses": words, "labels": labels}
        found = list[InstanceView]()
        async for each in self._connect(ctx).list(**{name: value for name, value in filter.items() if value}):
            if len(found) == limit:
                return InstancesView(instances=found, has_more=True)
            found.append(InstanceView.of(each))
        return InstancesView(instances=found, has_more=False)

    async def wait_for(
        self,
        ctx: Context[Any, Any],
        operation_id: Annotated[str, Field(description="Id of an operation, as create_instance returned it.")],
        seconds: Annotated[float, Field(ge=0, le=WAIT_MAX)] = WAIT_MAX,
    ) -> WaitView:
        """Wait until an operation has ended, at most 45 s; call again if it has not."""
        operation = await self._connect(ctx).poll(operation_id, timeout=seconds)
        is_over = operation.finished_at is not None
        return WaitView(operation=OperationView.of(operation), is_over=is_over, call_again=not is_over)

    async def start_instance(self, ctx: Context[Any, Any], operation_key: Key, instance: Instance) -> AcceptedView:
        """Start an EXITED instance; its lifetime counts from the start."""
        return AcceptedView.of(await self._connect(ctx).start(instance, idempotency_key=operation_key))

    async def stop_instance(self, ctx: Context[Any, Any], operation_key: Key, instance: Instance) -> AcceptedView:
        """Stop an instance. Its disk is kept, and billed."""
        return AcceptedView.of(await self._connect(ctx).stop(instance, idempotency_key=operation_key))

    async def delete_instance(self, ctx: Context[Any, Any], operation_key: Key, instance: Instance) -> AcceptedView:
        """Delete an instance with the data on its disk."""
        return AcceptedView.of(await self._connect(ctx).delete(instance, idempotency_key=operation_key))

    async def extend_lifetime(
        self,
        ctx: Context[Any, Any],
        operation_key: Key,
        instance: Instance,
        until: Annotated[datetime, Field(description="New end, with a time zone. It never gets earlier.")],
    ) -> InstanceView:
        """Move the end of an instance to a later time."""
        if until.tzinfo is None:
            code = "INVALID_LIFETIME"
            raise ToolError(problem(code, "The time has no time zone.", path=["until"], remedy=help_of(code)))
        extended = await self._connect(ctx).extend(instance, until=until, idempotency_key=operation_key)
        return InstanceView.of(extended)

    async def get_events(
        self,
        ctx: Context[Any, Any],
        instance: Annotated[str | None, Field(description="Name or id; default: all instances.")] = None,
        after: Annotated[str | None, Field(description="Cursor of an earlier call.")] = None,
        limit: Annotated[int, Field(ge=1, le=40)] = 20,  # what one query may cost
    ) -> EventsView:
        """Past events, oldest first."""
        client = self._connect(ctx)
        filter: dict[str, Any] = {} if instance is None else {"ids": [(await client.get(instance)).id]}
        events, cursor = await client.event_page(after=after, first=limit + 1, **filter)
        has_more = len(events) > limit
        if has_more:
            events = events[:limit]
            cursor = events[-1].cursor
        shown = [
            EventView(
                type=each.type,
                at=each.occurred_at,
                instance_id=each.instance_id,
                status=None if each.status is None else str(each.status),
                data=each.data,
            )
            for each in events
        ]
        return EventsView(events=shown, cursor=cursor, has_more=has_more)

    async def get_log(
        self,
        ctx: Context[Any, Any],
        instance: Instance,
        which: Literal["CONTAINER", "SYSTEM"] = "CONTAINER",
        lines: Annotated[int, Field(ge=1, le=LOG_LINES_MAX)] = 100,
    ) -> LogView:
        """The last lines of an instance's log, as its program wrote them."""
        return LogView(text=await self._connect(ctx).log(instance, which=which, tail=lines))

    async def get_spend(
        self,
        ctx: Context[Any, Any],
        group_by: Literal["DAY", "INSTANCE", "PRODUCT", "REGION", "TOKEN"] = "DAY",
        days: Annotated[int, Field(ge=1, le=366)] = 30,
    ) -> SpendView:
        """What the project spent in the last days, by group."""
        since = datetime.now().astimezone() - timedelta(days=days)
        report = await self._connect(ctx).spend(group_by=group_by, since=since)
        groups = [SpendPartView(key=each.key, amount=str(each.amount)) for each in report.groups]
        return SpendView(total=str(report.total), groups=groups)


def _request(product: str, gpu_count: int, regions: list[str] | None, billing: str) -> dict[str, Any]:
    given = {"product": product, "gpu_count": gpu_count, "billing": billing}
    return given if regions is None else {**given, "regions": regions}


async def _max_cost(client: AsyncRequests, request: dict[str, Any], limit: Decimal | None, instance: Any) -> str | None:
    """The most expensive candidate, or the given limit if that is lower, for the longest run."""
    longest = instance.lifetime and instance.lifetime.max_duration
    if longest is None:
        return None
    if instance.price_per_hour is not None:
        price = instance.price_per_hour.amount
    else:
        offer = await client.quote(**request)
        prices = [each.price_per_hour.amount for each in offer.candidates if each.price_per_hour]
        price = max(prices, default=None)
        if limit is not None:
            price = limit if price is None else min(price, limit)
    if price is None:
        return None
    cost = price * Decimal(longest.total_seconds()) / 3600
    return f"{cost.quantize(Decimal('0.0001'), ROUND_CEILING)} USD"  # the most is never more than what is shown


def _shown(money: Any) -> str | None:
    return None if money is None else str(money)


def _cheapest(product: Any) -> float:
    prices = [each.amount_micros for each in (product.spot_price_per_gpu_hour, product.price_per_gpu_hour) if each]
    return min(prices, default=float("inf"))
