"""Types of an instance."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Self
from uuid import UUID

import strawberry
from graphql import GraphQLError
from pydantic import SecretStr

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.inputs import First
from schema.pagination import check_first
from schema.types.health import InstanceHealth
from schema.types.lifetime import Lifetime
from schema.types.money import BillingMode, Money
from schema.types.operation import HELP, Operation
from server.billing import is_billed
from server.conversion import convert
from server.db import tables
from server.encryption import UnknownEncryptionKey
from server.enums import Billing, InstanceKind, InstanceStatus, OperationKind, PlacementOrder, Role, ToolName
from server.error_codes import help_of
from server.instances.attempts import MACHINE_MAY_EXIST
from server.instances.env import is_secret
from server.instances.provider.reader import FRESH_FOR, unseen_for
from server.instances.queries import access as queries
from server.instances.status import actions, has_machine
from server.instances.tools import tool_name

if TYPE_CHECKING:
    from schema.types.webhook import Webhook

described(
    InstanceStatus,
    description="Status of an instance. RUNNING: the machine is running. READY: its endpoints respond.",
    values={
        "CREATING": "Accepted; choosing a region and creating it at the provider.",
        "STARTING": "Created at the provider; the machine is starting.",
        "RUNNING": "The machine is running.",
        "HEALTH_CHECKING": "The machine is running; its endpoints are being probed.",
        "READY": "Its endpoints respond, or it has none to check.",
        "STOPPING": "Stopping.",
        "EXITED": "Stopped. Its disk is kept and billed.",
        "RESTARTING": "Restarting.",
        "MIGRATING": "Migrating to another node.",
        "DELETING": "Being deleted at the provider.",
        "DELETED": "Deleted at the provider.",
        "FAILED": "Failed: see `failure`. A machine may still exist and be billed.",
    },
)
described(
    Billing,
    description="Requested billing option.",
    values={
        "SPOT_THEN_ON_DEMAND": "Spot first, then on demand; `placement` says whether per region or in all regions.",
        "SPOT": "Spot only: cheaper, but the provider may reclaim it.",
        "ON_DEMAND": "On demand only.",
    },
)
described(
    PlacementOrder,
    description="Order in which products and regions are tried.",
    values={
        "PRICE": "Spot in all regions before on demand in any, the lowest price first; at equal prices in the order of "
        "regions.",
        "REGION_ORDER": "Region by region in the given order; in each, spot before on demand.",
    },
)


described(
    InstanceKind,
    description="Whether an instance has GPUs.",
    values={
        "GPU": "With 1 to 8 GPUs.",
        "CPU": "Without a GPU; on demand only.",
        "OTHER": "A kind that this server does not know; refused as input.",
    },
)


@strawberry.type(description="Why an instance failed.")
class InstanceFailure:
    code: str = strawberry.field(description="Stable error code, such as HEALTH_CHECK_FAILED.")
    message: str = strawberry.field(description="Readable message.")
    actions: list[OperationKind] = strawberry.field(
        description="Operations possible now. DELETE always; others only if a machine was created."
    )

    @strawberry.field(description=HELP)
    def help(self) -> str | None:
        return help_of(self.code)


@strawberry.type(description="How a container ended by itself.")
class ContainerExit:
    code: int | None = strawberry.field(description="Exit code; null if the provider does not say it.")
    message: str = strawberry.field(description="What the provider says about it.")


@strawberry.type(description="A name and its value.")
class KeyValue:
    key: str = strawberry.field(description="The name.")
    value: str = strawberry.field(description="The value.")


@strawberry.type(description="An environment variable.")
class EnvVariable:
    key: str = strawberry.field(description="The name.")
    secret: bool = strawberry.field(description="Whether its value is never shown.")
    stored: strawberry.Private[object]  # not printed by repr() of the type; may be encrypted

    @strawberry.field(description="The value; null if it is secret, or if the caller's role is below OPERATOR.")
    def value(self, info: Info) -> str | None:
        if self.secret or not info.context.caller.may(Role.OPERATOR):
            return None
        try:
            return info.context.services.cipher.open(self.stored)
        except UnknownEncryptionKey as error:
            extensions = {"code": "ENCRYPTION_KEY_MISSING", "retryable": True}
            raise GraphQLError(str(error), extensions=extensions) from None

    @classmethod
    def list_of(cls, env: Mapping[str, object], secret_env: list[str] | None = None) -> "list[EnvVariable]":
        return [cls(key=key, secret=is_secret(key, secret_env), stored=value) for key, value in sorted(env.items())]


@strawberry.type(description="A port that the instance exposes.")
class Port:
    port: int = strawberry.field(description="The port inside the instance.")
    type: str = strawberry.field(description="Protocol as the provider names it: http or tcp.")


@strawberry.type(description="A tool beside the container.")
class Tool:
    name: ToolName = strawberry.field(description="Which tool it is.")
    port: int = strawberry.field(description="The port that it is exposed on.")


@strawberry.type(description="Public address of a port while the instance runs.")
class Endpoint:
    port: int = strawberry.field(description="The port inside the instance.")
    type: str = strawberry.field(description="Protocol as the provider names it: http or tcp.")
    address: str = strawberry.field(description="URL for http, host:port for tcp.")


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
        failure = None
        unseen = unseen_for(row, seen_at=seen_at, at=at)
        # A process of an older release leaves READY without clearing the column.
        degraded_since = row.degraded_since if row.status == InstanceStatus.READY else None
        billed = is_billed(row.status, row.novita_status)
        possible = actions(InstanceStatus(row.status), has_machine=has_machine(row))
        if row.failure_code is not None:
            failure = InstanceFailure(code=row.failure_code, message=row.failure_message or "", actions=possible)
        return convert(
            cls,
            row,
            **cls.identity(row),
            status=InstanceStatus(row.status),
            machine_may_exist=row.status_reason == MACHINE_MAY_EXIST,
            failure=failure,
            kind=InstanceKind.GPU if row.gpu_count else InstanceKind.CPU,
            tools=tools_of(row.tools or []),  # null in events of before
            billing=Billing(row.billing),
            placement=PlacementOrder(row.placement or PlacementOrder.REGION_ORDER),
            max_hourly_price=Money.of(row.max_hourly_price_e5),
            ports=[Port(port=port["port"], type=port["type"]) for port in row.ports],
            labels=pairs(row.labels),
            ready_timeout=ready_timeout(row),
            billing_mode=BillingMode.of(row.billing_mode),
            is_billed=billed,
            price_per_hour=Money.of(row.price_per_hour_e5) if billed else None,
            running_price_per_hour=Money.of(row.price_per_hour_e5),
            endpoints=[
                Endpoint(port=endpoint["port"], type=endpoint["type"], address=endpoint["address"])
                for endpoint in row.endpoints
            ],
            exit=None if row.exit_message is None else ContainerExit(code=row.exit_code, message=row.exit_message),
            is_degraded=degraded_since is not None,
            degraded_since=degraded_since,
            stale=unseen is not None and unseen > FRESH_FOR,
            stale_for=unseen,
            actions=possible,
            lifetime=Lifetime.of(row),
        )


@strawberry.type(description="A GPU instance.")
class Instance(InstanceState, Node):
    row_id: strawberry.Private[UUID]

    @classmethod
    def identity(cls, row: tables.InstanceLike) -> dict[str, Any]:
        return {"row_id": row.id, "id": strawberry.ID(ids.format_id(ids.INSTANCE, row.id))}

    @strawberry.field(description="Environment variables of the container; none once it is DELETED.")
    async def env(self, info: Info) -> list[EnvVariable]:
        stored = await info.context.loaders.env.load(self.row_id)
        return EnvVariable.list_of(stored.env, stored.secret_env)

    @strawberry.field(description="Latest health of its endpoints in this run; null before the first check.")
    async def health(self, info: Info) -> InstanceHealth | None:
        return InstanceHealth.of(await info.context.loaders.health.load(self.row_id))

    @strawberry.field(description="Webhook that receives its events, if any.")
    async def webhook(self, info: Info) -> Annotated["Webhook", strawberry.lazy("schema.types.webhook")] | None:
        from schema.types.webhook import Webhook  # noqa: PLC0415 - the two types refer to each other

        found = await info.context.loaders.webhook.load(self.row_id)
        return None if found is None else Webhook(url=found[0], disabled_at=found[1])

    @strawberry.field(description="The operation in progress, if any.")
    async def open_operation(self, info: Info) -> Operation | None:
        row = await info.context.loaders.open_operation.load(self.row_id)
        return None if row is None else Operation.of(row)

    @strawberry.field(description="Its latest operations, newest first. For more, use the query `operations`.")
    async def operations(self, info: Info, first: First = 10) -> list[Operation]:
        rows = await info.context.loaders.operations(check_first(first)).load(self.row_id)
        return [Operation.of(row) for row in rows]


def tools_of(tools: list[dict[str, Any]]) -> list[Tool]:
    return [Tool(name=tool_name(each["name"]), port=each["port"]) for each in tools]


def ready_timeout(row: tables.InstanceLike) -> timedelta | None:
    seconds = row.ready_timeout_seconds
    return None if seconds is None else timedelta(seconds=seconds)


def pairs(values: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in sorted(values.items())]


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
