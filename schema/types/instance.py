"""An instance as callers see it."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.arguments import First
from schema.context import Info
from schema.paging import check_first
from schema.types.billing import BillingMode
from schema.types.money import Money
from schema.types.node import Node
from schema.types.operation import Operation
from schema.types.probe import InstanceHealth
from schema.words import described
from server.db import tables
from server.instances.verbs import actions
from server.instances.watch import FRESH_FOR, unseen_for
from server.words import Billing, InstanceStatus, OperationKind

if TYPE_CHECKING:
    from schema.types.webhook import Webhook

described(
    InstanceStatus,
    description="Where an instance stands. RUNNING: the machine is up. READY: what it serves answers.",
    values={
        "CREATING": "It was accepted; a place for it is being found.",
        "STARTING": "The provider has it; its machine is on the way up.",
        "RUNNING": "The machine is up.",
        "HEALTH_CHECKING": "The machine is up; what it serves is being probed.",
        "READY": "What it serves answers, or it serves nothing.",
        "STOPPING": "It was asked to stop.",
        "EXITED": "It is stopped. Its disk is kept, and costs.",
        "RESTARTING": "It is being stopped and started again.",
        "MIGRATING": "It is being moved to another node.",
        "DELETING": "It is being removed at the provider.",
        "DELETED": "The provider no longer has it, as was asked for.",
        "FAILED": "Something went wrong: see `failure`. A machine may still be there, and cost.",
    },
)
described(
    Billing,
    description="How the caller wants to pay.",
    values={
        "SPOT_THEN_ON_DEMAND": "In each region spot first, then on demand.",
        "SPOT": "Only as spot: for less, and the provider may take it back.",
        "ON_DEMAND": "Only on demand.",
    },
)


@strawberry.type(description="Why an instance failed.")
class InstanceFailure:
    code: str = strawberry.field(description="A stable word for programs, such as HEALTH_CHECK_FAILED.")
    message: str = strawberry.field(description="A sentence for people.")
    actions: list[OperationKind] = strawberry.field(
        description="What can be done next. DELETE always; the others only where a machine was made."
    )


@strawberry.type(description="A name and its value.")
class KeyValue:
    key: str = strawberry.field(description="The name.")
    value: str = strawberry.field(description="The value.")


@strawberry.type(description="A port that the instance exposes.")
class Port:
    port: int = strawberry.field(description="The port inside the instance.")
    type: str = strawberry.field(description="What it speaks: http or tcp, as the provider says it.")


@strawberry.type(description="A port of the instance as it is reachable from outside, while it runs.")
class Endpoint:
    port: int = strawberry.field(description="The port inside the instance.")
    type: str = strawberry.field(description="What it speaks: http or tcp, as the provider says it.")
    address: str = strawberry.field(description="A URL for http, host:port for tcp.")


@strawberry.type(description="A GPU machine that somebody asked for.")
class Instance(Node):
    row_id: strawberry.Private[UUID]
    name: str = strawberry.field(description="Unique among the project's instances that are not deleted.")
    status: InstanceStatus = strawberry.field(description="Where it stands.")
    status_reason: str | None = strawberry.field(
        description="Why it is there, as a word, where there is more to say: SPOT_RECLAIMED, STOPPED_OUTSIDE, ..."
    )
    status_since: datetime = strawberry.field(description="Since when it stands there.")
    version: int = strawberry.field(description="Grows by one with every change; a higher one is newer.")
    failure: InstanceFailure | None = strawberry.field(description="Why it failed; only when it has FAILED.")
    product_name: str = strawberry.field(description="The product asked for, such as `RTX 4090 24GB`.")
    gpu_count: int = strawberry.field(description="GPUs, 1 to 8.")
    rootfs_size_gb: int = strawberry.field(description="Its root disk in GB, such as 60.")
    billing: Billing = strawberry.field(description="How the caller wanted to pay.")
    max_hourly_price: Money | None = strawberry.field(description="The most the caller allows for an hour.")
    regions: list[str] = strawberry.field(description="The regions to try, in this order, such as AS-SGP-02.")
    template_id: str | None = strawberry.field(description="The provider's template it was made from.")
    image: str = strawberry.field(description="The container image, such as nginx:1.27.")
    command: str | None = strawberry.field(description="What runs in it, where it is not the image's own.")
    ports: list[Port] = strawberry.field(description="The ports asked for.")
    labels: list[KeyValue] = strawberry.field(description="The caller's own notes.")
    novita_id: str | None = strawberry.field(description="The provider's id, once it was made there.")
    novita_status: str | None = strawberry.field(description="What the provider last called its state.")
    region: str | None = strawberry.field(description="The region where it was made, such as AS-SGP-02.")
    product_id: str | None = strawberry.field(description="The provider's product that it is.")
    billing_mode: BillingMode | None = strawberry.field(description="How it is paid, once it was made.")
    price_per_hour: Money | None = strawberry.field(description="What the whole instance costs an hour.")
    endpoints: list[Endpoint] = strawberry.field(description="Where it can be reached, while it runs.")
    spot_reclaim_at: datetime | None = strawberry.field(description="When the provider will take a spot instance back.")
    observed_at: datetime | None = strawberry.field(description="When the provider was last asked about it.")
    stale: bool = strawberry.field(
        description="Whether it is moving and nobody could see where it stands for a while: this is the last known."
    )
    stale_for: timedelta | None = strawberry.field(
        description="How long ago a moving instance was last seen at the provider; null for one at rest."
    )
    created_at: datetime = strawberry.field(description="When it was asked for.")
    updated_at: datetime = strawberry.field(description="When anything about it last changed.")
    estimated_ready_at: datetime | None = strawberry.field(description="When it will probably be READY.")
    running_at: datetime | None = strawberry.field(description="When this run's machine was up.")
    ready_at: datetime | None = strawberry.field(description="When this run was READY.")
    deleted_at: datetime | None = strawberry.field(description="When it was gone at the provider.")
    actions: list[OperationKind] = strawberry.field(
        description="The verbs that its status allows. While another operation is not over, only DELETE is accepted."
    )

    @strawberry.field(description="Environment variables of the container.")
    async def env(self, info: Info) -> list[KeyValue]:
        return _pairs(await info.context.loaders.env.load(self.row_id))

    @strawberry.field(description="What the probes of its endpoints found last in this run; null before the first.")
    async def health(self, info: Info) -> InstanceHealth | None:
        return InstanceHealth.of(await info.context.loaders.health.load(self.row_id))

    @strawberry.field(description="Where its events are sent, if anywhere.")
    async def webhook(self, info: Info) -> Annotated["Webhook", strawberry.lazy("schema.types.webhook")] | None:
        from schema.types.webhook import Webhook  # noqa: PLC0415 - the two name each other

        found = await info.context.loaders.webhook.load(self.row_id)
        return None if found is None else Webhook(url=found[0], disabled_at=found[1])

    @strawberry.field(description="The operation that is not over, if any.")
    async def open_operation(self, info: Info) -> Operation | None:
        row = await info.context.loaders.open_operation.load(self.row_id)
        return None if row is None else Operation.of(row)

    @strawberry.field(description="Its newest operations, newest first. For more, ask for `operations`.")
    async def operations(self, info: Info, first: First = 10) -> list[Operation]:
        rows = await info.context.loaders.operations(check_first(first)).load(self.row_id)
        return [Operation.of(row) for row in rows]

    @classmethod
    def of(cls, row: tables.Instance, *, seen_at: datetime | None = None, at: datetime | None = None) -> "Instance":
        """`seen_at` where it is known better than the row does; `at` where the row is of another moment than now."""
        failure = None
        unseen = unseen_for(row, seen_at=seen_at, at=at)
        possible = actions(InstanceStatus(row.status), has_machine=row.novita_id is not None)
        if row.failure_code is not None:
            failure = InstanceFailure(code=row.failure_code, message=row.failure_message or "", actions=possible)
        return cls(
            row_id=row.id,
            id=strawberry.ID(ids.shown(ids.INSTANCE, row.id)),
            name=row.name,
            status=InstanceStatus(row.status),
            status_reason=row.status_reason,
            status_since=row.status_since,
            version=row.version,
            failure=failure,
            product_name=row.product_name,
            gpu_count=row.gpu_count,
            rootfs_size_gb=row.rootfs_size_gb,
            billing=Billing(row.billing),
            max_hourly_price=Money.of(row.max_hourly_price_e5),
            regions=row.regions,
            template_id=row.template_id,
            image=row.image,
            command=row.command,
            ports=[Port(port=port["port"], type=port["type"]) for port in row.ports],
            labels=_pairs(row.labels),
            novita_id=row.novita_id,
            novita_status=row.novita_status,
            region=row.region,
            product_id=row.product_id,
            billing_mode=BillingMode.of(row.billing_mode),
            price_per_hour=Money.of(row.price_per_hour_e5),
            endpoints=[
                Endpoint(port=endpoint["port"], type=endpoint["type"], address=endpoint["address"])
                for endpoint in row.endpoints
            ],
            spot_reclaim_at=row.spot_reclaim_at,
            observed_at=row.observed_at,
            stale=unseen is not None and unseen > FRESH_FOR,
            stale_for=unseen,
            created_at=row.created_at,
            updated_at=row.updated_at,
            estimated_ready_at=row.estimated_ready_at,
            running_at=row.running_at,
            ready_at=row.ready_at,
            deleted_at=row.deleted_at,
            actions=possible,
        )


def _pairs(values: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in sorted(values.items())]
