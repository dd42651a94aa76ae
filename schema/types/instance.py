"""Types of an instance."""

from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Self
from uuid import UUID

import strawberry
from pydantic import SecretStr
from strawberry.dataloader import DataLoader

from schema import ids
from schema.context import Info
from schema.ids import Node
from schema.inputs import First
from schema.loaded import Lookup
from schema.loaders import Loaders
from schema.pagination import check_first
from schema.types.health import InstanceHealth
from schema.types.instance_parts import (
    DERIVED,
    ContainerExit,
    Endpoint,
    EnvVariable,
    InstanceFailure,
    KeyValue,
    Port,
    Tool,
)
from schema.types.lifetime import Lifetime
from schema.types.machines.machine import Machine
from schema.types.machines.recovery import Recovery
from schema.types.money import BillingMode, Money
from schema.types.operation import Operation
from schema.types.spend.report import InstanceSpend
from schema.types.volume import InstanceVolume
from server.conversion import convert
from server.db import tables
from server.enums import Billing, InstanceKind, InstanceStatus, OperationKind, PlacementOrder
from server.instances.queries import access as queries

if TYPE_CHECKING:
    from schema.types.webhook import Webhook


@strawberry.type
class InstanceState:
    """The fields that come from an instance's row, which is also in events."""

    name: str = strawberry.field(description="Name, unique among the project's instances that are not deleted.")
    status: InstanceStatus = strawberry.field(description="Status.")
    status_reason: str | None = strawberry.field(
        description="Reason code of the status, if any: SPOT_RECLAIMED, STOPPED_OUTSIDE, MACHINE_MAY_EXIST, ..."
    )
    machine_may_exist: bool = strawberry.field(
        description="Whether the provider did not respond to its creation, so that a machine without `novitaId` may "
        "exist and be billed. It is being searched for; it is then linked to the instance or known to be absent."
    )
    status_since: datetime = strawberry.field(description="When the status last changed.")
    version: int = strawberry.field(description="Increases by one with every change; higher is newer.")
    failure: InstanceFailure | None = strawberry.field(description="Why it failed; null unless FAILED.")
    product_name: str = strawberry.field(description="Requested product, such as `RTX 4090 24GB`.")
    kind: InstanceKind = strawberry.field(description="Whether it has GPUs.")
    gpu_count: int = strawberry.field(description="Number of GPUs, 1 to 8; 0 if the kind is CPU.")
    rootfs_size_gb: int = strawberry.field(description="Root disk in GB, such as 60.")
    billing: Billing = strawberry.field(description="Requested billing option.")
    max_hourly_price: Money | None = strawberry.field(description="Maximum price per hour set at creation.")
    regions: list[str] = strawberry.field(description="Regions to try, such as AS-SGP-02; see `placement`.")
    placement: PlacementOrder = strawberry.field(description="Order in which regions are tried.")
    template_id: str | None = strawberry.field(description="Id of the provider template it was created from.")
    image: str = strawberry.field(description="Container image, such as nginx:1.27.")
    command: str | None = strawberry.field(description="Start command; null if it is the image's.")
    entrypoint: str | None = strawberry.field(description="Entrypoint; null if it is the image's.")
    ports: list[Port] = strawberry.field(description="Requested ports.")
    tools: list[Tool] = strawberry.field(description="Tools that run beside the container.")
    min_cuda_version: str | None = strawberry.field(description="Lowest CUDA version of the node's driver, if any.")
    network_id: str | None = strawberry.field(description="The provider's id of its private network, if any.")
    volumes: list[InstanceVolume] = strawberry.field(description="Network volumes that it mounts.")
    labels: list[KeyValue] = strawberry.field(description="Your own labels.")
    ready_timeout: timedelta | None = strawberry.field(
        description="How long its machine may take to run; null: the server's INSTANCE_MAX_WAIT."
    )
    novita_id: str | None = strawberry.field(description="The provider's id, once created there.")
    novita_status: str | None = strawberry.field(description="State last reported by the provider.")
    region: str | None = strawberry.field(description="Region where it was created, such as AS-SGP-02.")
    product_id: str | None = strawberry.field(description="The provider's product id.")
    billing_mode: BillingMode | None = strawberry.field(description="Actual billing mode, once created.")
    is_billed: bool = strawberry.field(
        description="Whether the provider bills its machine now: from the pull of the image on, while it runs, stops, "
        "restarts or migrates, also if the instance has FAILED. A stopped instance is billed for its disk only."
    )
    price_per_hour: Money | None = strawberry.field(
        description="Price per hour of the whole instance; null while it is not billed, as when EXITED or DELETED."
    )
    running_price_per_hour: Money | None = strawberry.field(
        description="Price per hour while it runs, whether it is billed now or not; null until it was created."
    )
    endpoints: list[Endpoint] = strawberry.field(description="Public endpoints while it runs.")
    exit: ContainerExit | None = strawberry.field(
        description="How its container ended, if it ended by itself; until the next start."
    )
    spot_reclaim_at: datetime | None = strawberry.field(description="When the provider will reclaim the spot instance.")
    observed_at: datetime | None = strawberry.field(description="When its state was last read from the provider.")
    is_degraded: bool = strawberry.field(
        description="Whether its endpoints stopped responding after it became READY; the status stays READY."
    )
    degraded_since: datetime | None = strawberry.field(description="Since when it is degraded; null if it is not.")
    stale: bool = strawberry.field(
        description="Whether its state is changing and could not be read from the provider recently; the data is "
        "the last known."
    )
    stale_for: timedelta | None = strawberry.field(
        description="Time since the provider was last read, while the state is changing; otherwise null."
    )
    created_at: datetime = strawberry.field(description="Creation time.")
    updated_at: datetime = strawberry.field(description="Time of the last change.")
    estimated_ready_at: datetime | None = strawberry.field(description="Estimated time of READY.")
    running_at: datetime | None = strawberry.field(description="When the machine of this run started running.")
    ready_at: datetime | None = strawberry.field(description="When this run became READY.")
    deleted_at: datetime | None = strawberry.field(description="When it was deleted at the provider.")
    lifetime: Lifetime | None = strawberry.field(description="Limits of its lifetime, and the next action; null: none.")
    recovery: Recovery | None = strawberry.field(description="How it comes back by itself; null: it does not.")
    actions: list[OperationKind] = strawberry.field(
        description="Operations that the status allows. While an operation is in progress, only DELETE is accepted."
    )

    @classmethod
    def identity(cls, row: tables.InstanceLike) -> dict[str, Any]:
        """The fields by which a type refers to the instance."""
        raise NotImplementedError

    @classmethod
    def of(cls, row: tables.InstanceLike, *, seen_at: datetime | None = None, at: datetime | None = None) -> Self:
        """`seen_at`: a later reading than the row's. `at`: the time of a row from the past; default now."""
        derived = {name: each.make(row, seen_at, at) for name, each in DERIVED.items()}
        return convert(cls, row, **cls.identity(row), **derived)


def _webhook(found: tuple[str, datetime | None] | None) -> Any:
    from schema.types.webhook import Webhook  # noqa: PLC0415 - the two types refer to each other

    return None if found is None else Webhook(url=found[0], disabled_at=found[1])


def _newest_operations(loaders: Loaders, first: int) -> DataLoader[Any, Any]:
    return loaders.operations(check_first(first))


_ROW_ID = attrgetter("row_id")
ENV = Lookup(attrgetter("env"), _ROW_ID, lambda stored: EnvVariable.list_of(stored.env, stored.secret_env))
HEALTH = Lookup(attrgetter("health"), _ROW_ID, InstanceHealth.of)
WEBHOOK = Lookup(attrgetter("webhook"), _ROW_ID, _webhook)
OPEN_OPERATION = Lookup(attrgetter("open_operation"), _ROW_ID, lambda row: None if row is None else Operation.of(row))
OPERATIONS = Lookup(_newest_operations, _ROW_ID, lambda rows: [Operation.of(row) for row in rows])
MACHINES = Lookup(attrgetter("machines"), _ROW_ID, Machine.list_of)
SPEND = Lookup(attrgetter("spend"), _ROW_ID, InstanceSpend.of)


@strawberry.type(description="A GPU instance.")
class Instance(InstanceState, Node):
    row_id: strawberry.Private[UUID]

    @classmethod
    def identity(cls, row: tables.InstanceLike) -> dict[str, Any]:
        return {"row_id": row.id, "id": strawberry.ID(ids.format_id(ids.INSTANCE, row.id))}

    @strawberry.field(
        description="Environment variables of the container; none once it is DELETED.", metadata=ENV.metadata
    )
    async def env(self, info: Info) -> list[EnvVariable]:
        return await ENV.load(self, info)

    @strawberry.field(
        description="Latest health of its endpoints in this run; null before the first check.", metadata=HEALTH.metadata
    )
    async def health(self, info: Info) -> InstanceHealth | None:
        return await HEALTH.load(self, info)

    @strawberry.field(description="What it has cost.", metadata=SPEND.metadata)
    async def spend(self, info: Info) -> InstanceSpend:
        return await SPEND.load(self, info)

    @strawberry.field(
        description="Its machines at the provider, in order; `novitaId` is the one that serves.",
        metadata=MACHINES.metadata,
    )
    async def machines(self, info: Info) -> list[Machine]:
        return await MACHINES.load(self, info)

    @strawberry.field(description="Webhook that receives its events, if any.", metadata=WEBHOOK.metadata)
    async def webhook(self, info: Info) -> Annotated["Webhook", strawberry.lazy("schema.types.webhook")] | None:
        return await WEBHOOK.load(self, info)

    @strawberry.field(description="The operation in progress, if any.", metadata=OPEN_OPERATION.metadata)
    async def open_operation(self, info: Info) -> Operation | None:
        return await OPEN_OPERATION.load(self, info)

    @strawberry.field(
        description="Its latest operations, newest first. For more, use the query `operations`.",
        metadata=OPERATIONS.metadata,
    )
    async def operations(self, info: Info, first: First = 10) -> list[Operation]:
        return await OPERATIONS.load(self, info, first=first)


@strawberry.type(description="SSH access to an instance. It changes with every start.")
class SshAccess:
    secret: strawberry.Private[SecretStr | None]  # not printed by repr()
    command: str = strawberry.field(description="SSH command, such as `ssh -p 32787 root@host`.")
    is_running: bool = strawberry.field(description="Whether the SSH server is running, according to the provider.")

    @strawberry.field(description="The password; null if the provider returns none. Pilotlight does not store it.")
    def password(self) -> str | None:
        return None if self.secret is None else self.secret.get_secret_value()

    @classmethod
    def of(cls, access: queries.SshAccess) -> "SshAccess":
        return convert(cls, access, secret=access.password)
