"""Parts of an instance, and how its fields are made from a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import strawberry
from graphql import GraphQLError

from schema.context import Info
from schema.enums import described
from schema.types.lifetime import Lifetime
from schema.types.machines.recovery import Recovery
from schema.types.money import BillingMode, Money
from schema.types.operation import HELP
from schema.types.volume import InstanceVolume
from server.billing import is_billed
from server.db import tables
from server.encryption import UnknownEncryptionKey
from server.enums import Billing, InstanceKind, InstanceStatus, OperationKind, PlacementOrder, Role, ToolName
from server.error_codes import help_of
from server.instances.attempts import MACHINE_MAY_EXIST
from server.instances.env import is_secret
from server.instances.limits import steps
from server.instances.provider.reader import FRESH_FOR, unseen_for
from server.instances.status import actions, has_machine
from server.instances.tools import tool_name

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


def tools_of(tools: list[dict[str, Any]]) -> list[Tool]:
    return [Tool(name=tool_name(each["name"]), port=each["port"]) for each in tools]


def pairs(values: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in sorted(values.items())]


@dataclass(frozen=True, slots=True)
class Derived:
    """A field that is not simply the column of its name. `make` gets the row, a later reading of its state than the
    row's, and the time that counts as now, if the row is from the past."""

    columns: tuple[str, ...]
    make: Callable[[tables.InstanceLike, datetime | None, datetime | None], Any]


def _failure(row: tables.InstanceLike, *_: Any) -> InstanceFailure | None:
    if row.failure_code is None:
        return None
    return InstanceFailure(code=row.failure_code, message=row.failure_message or "", actions=_actions(row))


def _actions(row: tables.InstanceLike, *_: Any) -> list[OperationKind]:
    return list(actions(row.status, has_machine=has_machine(row)))


def _degraded_since(row: tables.InstanceLike, *_: Any) -> datetime | None:
    # A process of an older release leaves READY without clearing the column.
    return row.degraded_since if row.status == InstanceStatus.READY else None


def _is_stale(row: tables.InstanceLike, seen_at: datetime | None, at: datetime | None) -> bool:
    unseen = unseen_for(row, seen_at=seen_at, at=at)
    return unseen is not None and unseen > FRESH_FOR


def _price_per_hour(row: tables.InstanceLike, *_: Any) -> Money | None:
    return Money.of(row.price_per_hour_e5) if is_billed(row.status, row.novita_status) else None


def _endpoints(row: tables.InstanceLike, *_: Any) -> list[Endpoint]:
    return [Endpoint(port=each["port"], type=each["type"], address=each["address"]) for each in row.endpoints]


def _exit(row: tables.InstanceLike, *_: Any) -> ContainerExit | None:
    return None if row.exit_message is None else ContainerExit(code=row.exit_code, message=row.exit_message)


def _placement(row: tables.InstanceLike, *_: Any) -> PlacementOrder:
    return PlacementOrder(row.placement or PlacementOrder.REGION_ORDER)


def _ready_timeout(row: tables.InstanceLike, *_: Any) -> timedelta | None:
    seconds = row.ready_timeout_seconds
    return None if seconds is None else timedelta(seconds=seconds)


_BILLED = ("status", "novita_status")
_MACHINE = ("novita_id", *_BILLED)
_SEEN = ("status", "status_reason", "status_since", "novita_id", "observed_at")
_LIFETIME = ("lifetime_due_at", "lifetime_action", "lifetime_reason", *steps.COLUMNS)

DERIVED: dict[str, Derived] = {
    "status": Derived(("status",), lambda row, _, __: InstanceStatus(row.status)),
    "machine_may_exist": Derived(("status_reason",), lambda row, _, __: row.status_reason == MACHINE_MAY_EXIST),
    "failure": Derived(("failure_code", "failure_message", *_MACHINE), _failure),
    "kind": Derived(("gpu_count",), lambda row, _, __: InstanceKind.GPU if row.gpu_count else InstanceKind.CPU),
    "billing": Derived(("billing",), lambda row, _, __: Billing(row.billing)),
    "max_hourly_price": Derived(("max_hourly_price_e5",), lambda row, _, __: Money.of(row.max_hourly_price_e5)),
    "placement": Derived(("placement",), _placement),
    "ports": Derived(("ports",), lambda row, _, __: [Port(port=port["port"], type=port["type"]) for port in row.ports]),
    "tools": Derived(("tools",), lambda row, _, __: tools_of(row.tools or [])),  # null in events of before
    "volumes": Derived(("volumes",), lambda row, _, __: InstanceVolume.list_of(row.volumes or [])),  # as `tools`
    "labels": Derived(("labels",), lambda row, _, __: pairs(row.labels)),
    "ready_timeout": Derived(("ready_timeout_seconds",), _ready_timeout),
    "billing_mode": Derived(("billing_mode",), lambda row, _, __: BillingMode.of(row.billing_mode)),
    "is_billed": Derived(_BILLED, lambda row, _, __: is_billed(row.status, row.novita_status)),
    "price_per_hour": Derived((*_BILLED, "price_per_hour_e5"), _price_per_hour),
    "running_price_per_hour": Derived(("price_per_hour_e5",), lambda row, _, __: Money.of(row.price_per_hour_e5)),
    "endpoints": Derived(("endpoints",), _endpoints),
    "exit": Derived(("exit_code", "exit_message"), _exit),
    "is_degraded": Derived(("status", "degraded_since"), lambda row, _, __: _degraded_since(row) is not None),
    "degraded_since": Derived(("status", "degraded_since"), _degraded_since),
    "stale": Derived(_SEEN, _is_stale),
    "stale_for": Derived(_SEEN, lambda row, seen_at, at: unseen_for(row, seen_at=seen_at, at=at)),
    "actions": Derived(_MACHINE, _actions),
    "recovery": Derived(("recovery", "recovery_state"), lambda row, _, __: Recovery.of(row)),
    "lifetime": Derived(_LIFETIME, lambda row, _, __: Lifetime.of(row)),
}
