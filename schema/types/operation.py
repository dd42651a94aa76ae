"""Types of an operation."""

from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Self
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.loaded import Lookup
from schema.types.market.wait import CapacityWait
from schema.types.money import BillingMode, Money
from server.conversion import convert
from server.db import tables
from server.enums import OPEN_OPERATION, PROGRESS, AttemptStatus, OperationKind, OperationPhase, OperationStatus
from server.error_codes import help_of

if TYPE_CHECKING:
    from schema.types.instance import Instance
    from schema.types.token import Token

described(
    OperationKind,
    description="Kind of an operation.",
    values={
        "CREATE": "Create an instance.",
        "START": "Start an exited instance.",
        "STOP": "Stop an instance.",
        "RESTART": "Restart an instance.",
        "MIGRATE": "Migrate an instance to another node of its region.",
        "UPDATE": "Change an instance; see `action`.",
        "DELETE": "Delete an instance.",
    },
)
described(
    OperationStatus,
    description="Status of an operation. QUEUED and RUNNING are open.",
    values={
        "QUEUED": "Accepted; no worker has started it yet.",
        "RUNNING": "In progress.",
        "SUCCEEDED": "Completed.",
        "FAILED": "Failed: see `error`.",
        "CANCELLED": "Cancelled by `cancelOperation`.",
        "SUPERSEDED": "Replaced by a delete.",
    },
)
described(
    OperationPhase,
    description="Current step of an operation.",
    values={
        "WAITING": "Waiting for a worker.",
        "PLACING": "Choosing region and product, and creating it at the provider.",
        "STARTING": "Calling the provider to start it.",
        "RESTARTING": "Calling the provider to restart or upgrade it.",
        "MIGRATING": "Calling the provider to migrate it.",
        "PROVISIONING": "Accepted by the provider; the machine is starting.",
        "CHECKING_HEALTH": "The machine is running; its endpoints are being probed.",
        "STOPPING": "Stopping the machine.",
        "UPDATING": "Applying the change at the provider, or saving the image there.",
        "DELETING": "Deleting the machine.",
        "OVER": "Ended, with any result.",
    },
)
described(
    AttemptStatus,
    description="Status of one create attempt. While ASKING or UNKNOWN, a machine may or may not exist.",
    values={
        "ASKING": "The provider is being called.",
        "UNKNOWN": "The call had no clear result; the provider's list is being checked.",
        "CREATED": "A machine was created.",
        "REJECTED": "Refused by the provider, or the region had no matching product.",
        "ABSENT": "The call had no clear result, but it is now certain that no machine was created.",
    },
)

HELP = "What you can do about it; null for a code that this server does not know."


@strawberry.type(description="Why an operation failed or waits.")
class OperationError:
    code: str = strawberry.field(description="Stable error code, such as READY_TIMEOUT.")
    message: str = strawberry.field(description="Readable message.")
    retryable: bool = strawberry.field(description="Whether repeating the request later can succeed.")
    exit_code: int | None = strawberry.field(
        default=None, description="Exit code of the container, for CONTAINER_EXITED, if the provider says it."
    )

    @strawberry.field(description=HELP)
    def help(self) -> str | None:
        return help_of(self.code)


@strawberry.type(description="One attempt to create the instance in one region.")
class Attempt:
    number: int = strawberry.field(description="Number within its operation, starting at 1.")
    region: str = strawberry.field(description="Region code, such as AS-SGP-02.")
    status: AttemptStatus = strawberry.field(description="Status of the attempt.")
    billing_mode: BillingMode | None = strawberry.field(description="Billing mode that was tried.")
    product_id: str | None = strawberry.field(description="The provider's product id.")
    price_per_hour: Money | None = strawberry.field(description="Price per hour of the whole instance.")
    reason_code: str | None = strawberry.field(description="Reason code if refused.")
    reason_message: str | None = strawberry.field(description="Reason as readable text if refused.")
    created_at: datetime = strawberry.field(description="Start time.")
    finished_at: datetime | None = strawberry.field(description="When its result was known.")

    @classmethod
    def of(cls, row: tables.AttemptLike) -> "Attempt":
        return convert(
            cls,
            row,
            status=AttemptStatus(row.status),
            billing_mode=BillingMode.of(row.billing_mode),
            price_per_hour=Money.of(row.price_per_hour_e5),
        )


def _token(row: tables.TokenRow | None) -> Any:
    from schema.types.token import Token  # noqa: PLC0415 - the two types refer to each other

    return None if row is None else Token.of(row)


def _instance(row: tables.InstanceRow | None) -> Any:
    from schema.lazy_instance import LazyInstance  # noqa: PLC0415 - the two types refer to each other

    if row is None:
        raise LookupError("an operation without an instance")
    return LazyInstance(row)


def _waiting_create(operation: "Operation") -> UUID | None:
    is_waiting = operation.kind is OperationKind.CREATE and operation.status in OPEN_OPERATION
    return operation.instance_row_id if is_waiting else None


REQUESTED_BY = Lookup(attrgetter("token"), attrgetter("token_row_id"), _token)
INSTANCE = Lookup(attrgetter("instance"), attrgetter("instance_row_id"), _instance)
ATTEMPTS = Lookup(attrgetter("attempts"), attrgetter("row_id"), lambda rows: [Attempt.of(row) for row in rows])
QUEUE = Lookup(
    attrgetter("queue_place"),
    _waiting_create,
    lambda place: None if place is None else QueuePlace(position=place.position, starts_at=place.starts_at),
)


WAIT = Lookup(
    attrgetter("capacity_wait"),
    lambda operation: operation.row_id if _may_wait(operation) else None,
    lambda view: None if view is None else CapacityWait.of(view),
)


def _may_wait(operation: "Operation") -> bool:
    return operation.kind in (OperationKind.CREATE, OperationKind.START) and operation.status in OPEN_OPERATION


@strawberry.type
class OperationState:
    """The fields that come from an operation's row, which is also in events."""

    token_row_id: strawberry.Private[UUID | None]
    kind: OperationKind = strawberry.field(description="Kind.")
    action: str | None = strawberry.field(
        description="What an UPDATE does beyond a change of ports or disk: SAVE_IMAGE or UPGRADE. Null otherwise. "
        "Expect others."
    )
    status: OperationStatus = strawberry.field(description="Status.")
    phase: OperationPhase = strawberry.field(description="Current step.")
    progress: int = strawberry.field(
        description="Progress in percent, by phase: WAITING 0; PLACING, STARTING, RESTARTING, MIGRATING 10; "
        "PROVISIONING 40; STOPPING, UPDATING, DELETING 50; CHECKING_HEALTH 80; OVER 100. Never "
        "decreases."
    )
    version: int = strawberry.field(description="Increases by one with every change; higher is newer.")
    error: OperationError | None = strawberry.field(description="Why it failed; null unless FAILED.")
    last_error: OperationError | None = strawberry.field(
        description="Why an open operation waits: the provider's last error. Null once a later call has succeeded, and "
        "when it has ended."
    )
    reason: str | None = strawberry.field(
        description="Why Pilotlight began it: LIFETIME, IDLE, SCHEDULE, BUDGET, RECOVERY or OUTSIDE (it follows a "
        "change at the provider). Null if a caller requested it. Expect others."
    )
    created_at: datetime = strawberry.field(description="When the request was accepted.")
    started_at: datetime | None = strawberry.field(description="When a worker first started it.")
    finished_at: datetime | None = strawberry.field(description="When it ended.")
    estimated_ready_at: datetime | None = strawberry.field(description="Estimated end.")

    @strawberry.field(
        description="Token that requested it; null if Pilotlight started it, for example after a change at the "
        "provider.",
        metadata=REQUESTED_BY.metadata,
    )
    async def requested_by(self, info: Info) -> Annotated["Token", strawberry.lazy("schema.types.token")] | None:
        return await REQUESTED_BY.load(self, info)

    @classmethod
    def identity(cls, row: tables.OperationLike) -> dict[str, Any]:
        """The fields by which a type refers to the operation."""
        raise NotImplementedError

    @classmethod
    def of(cls, row: tables.OperationLike) -> Self:
        error = None
        if row.error_code is not None:
            error = OperationError(
                code=row.error_code,
                message=row.error_message or "",
                retryable=bool(row.error_retryable),
                exit_code=row.exit_code,
            )
        return convert(
            cls,
            row,
            **cls.identity(row),
            token_row_id=row.requested_by,
            kind=OperationKind(row.kind),
            status=OperationStatus(row.status),
            phase=OperationPhase(row.phase),
            progress=PROGRESS[OperationPhase(row.phase)],
            error=error,
            last_error=None
            if row.last_error_code is None
            else OperationError(code=row.last_error_code, message=row.last_error_message or "", retryable=True),
        )


@strawberry.type(description="The place of an operation that waits for its turn to call the provider.")
class QueuePlace:
    position: int = strawberry.field(description="Place among the waiting creates of this project, counted from 1.")
    starts_at: datetime = strawberry.field(
        description="When it will probably begin, from the measured speed of the line. Projects take turns."
    )


@strawberry.type(description="One operation on one instance, such as CREATE or STOP, from request to result.")
class Operation(OperationState, Node):
    row_id: strawberry.Private[UUID]
    instance_row_id: strawberry.Private[UUID]

    @classmethod
    def identity(cls, row: tables.OperationLike) -> dict[str, Any]:
        id = strawberry.ID(ids.format_id(ids.OPERATION, row.id))
        return {"row_id": row.id, "instance_row_id": row.instance_id, "id": id}

    @strawberry.field(description="The instance, in its current state.", metadata=INSTANCE.metadata)
    async def instance(self, info: Info) -> Annotated["Instance", strawberry.lazy("schema.types.instance")]:
        return await INSTANCE.load(self, info)

    @strawberry.field(
        description="Where a create stands that waits for its turn to call the provider; null once it has begun, and "
        "for other kinds.",
        metadata=QUEUE.metadata,
    )
    async def queue(self, info: Info) -> QueuePlace | None:
        return await QUEUE.load(self, info)

    @strawberry.field(
        description="How a CREATE or START waits for capacity, as requested by `onNoCapacity`; null while it does not.",
        metadata=WAIT.metadata,
    )
    async def wait(self, info: Info) -> CapacityWait | None:
        return await WAIT.load(self, info)

    @strawberry.field(
        description="Position in the event log right before its first event: pass it as `after` to `instanceEvents` to "
        "watch it from its beginning. Null once the log no longer keeps that event."
    )
    async def cursor(self, info: Info) -> str | None:
        found = await info.context.loaders.operation_cursor.load((self.row_id, self.instance_row_id))
        return None if found is None else info.context.state_cursor(found)

    @strawberry.field(description="Create attempts, in order; empty for other kinds.", metadata=ATTEMPTS.metadata)
    async def attempts(self, info: Info) -> list[Attempt]:
        return await ATTEMPTS.load(self, info)
