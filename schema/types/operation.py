"""An operation as callers see it."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.types.money import Money
from schema.types.node import Node
from server.db import tables
from server.words import PROGRESS, AttemptStatus, OperationKind, OperationPhase, OperationStatus

if TYPE_CHECKING:
    from schema.types.instance import Instance

strawberry.enum(OperationKind, description="The verb of an operation.")
strawberry.enum(OperationStatus, description="Where an operation stands. QUEUED and RUNNING are open.")
strawberry.enum(OperationPhase, description="What an operation is doing now.")
strawberry.enum(
    AttemptStatus,
    description="How one try to create ended. While ASKING or UNKNOWN, nobody knows yet whether a machine was made.",
)


@strawberry.type(description="Why an operation failed.")
class OperationError:
    code: str = strawberry.field(description="A stable word for programs, such as READY_TIMEOUT.")
    message: str = strawberry.field(description="A sentence for people.")
    retryable: bool = strawberry.field(description="Whether asking again later makes sense.")


@strawberry.type(description="One try to create the instance in one region.")
class Attempt:
    number: int = strawberry.field(description="1 for the first of its operation.")
    region: str = strawberry.field(description="The region's code, such as AS-SGP-02.")
    status: AttemptStatus = strawberry.field(description="How it ended.")
    billing_mode: str | None = strawberry.field(description="spot or onDemand.")
    product_id: str | None = strawberry.field(description="The provider's product that was asked for.")
    price_per_hour: Money | None = strawberry.field(description="What the whole instance would cost an hour.")
    reason_code: str | None = strawberry.field(description="Why it was refused, as a word.")
    reason_message: str | None = strawberry.field(description="Why it was refused, as a sentence.")
    created_at: datetime = strawberry.field(description="When it began.")
    finished_at: datetime | None = strawberry.field(description="When its end was known.")

    @classmethod
    def of(cls, row: tables.Attempt) -> "Attempt":
        return cls(
            number=row.number,
            region=row.region,
            status=AttemptStatus(row.status),
            billing_mode=row.billing_mode,
            product_id=row.product_id,
            price_per_hour=Money.of(row.price_per_hour_e5),
            reason_code=row.reason_code,
            reason_message=row.reason_message,
            created_at=row.created_at,
            finished_at=row.finished_at,
        )


@strawberry.type(description="One verb on one instance, with a beginning, attempts and an end.")
class Operation(Node):
    row_id: strawberry.Private[UUID]
    instance_row_id: strawberry.Private[UUID]
    kind: OperationKind = strawberry.field(description="The verb.")
    status: OperationStatus = strawberry.field(description="Where it stands.")
    phase: OperationPhase = strawberry.field(description="What it is doing now.")
    progress: int = strawberry.field(
        description="How far it is, 0 to 100, by its phase: WAITING 0; PLACING, STARTING, RESTARTING, MIGRATING 10; "
        "PROVISIONING 40; STOPPING, UPDATING, DELETING 50; CHECKING_HEALTH 80; OVER 100. Never goes back."
    )
    version: int = strawberry.field(description="Grows by one with every change; a higher one is newer.")
    error: OperationError | None = strawberry.field(description="Why it failed; only when it has FAILED.")
    requested_by: strawberry.ID | None = strawberry.field(description="The token that asked for it.")
    created_at: datetime = strawberry.field(description="When it was accepted.")
    started_at: datetime | None = strawberry.field(description="When a worker first took it up.")
    finished_at: datetime | None = strawberry.field(description="When it ended.")
    estimated_ready_at: datetime | None = strawberry.field(description="When it will probably be over.")

    @strawberry.field(description="The instance it is about, as it is now.")
    async def instance(self, info: Info) -> Annotated["Instance", strawberry.lazy("schema.types.instance")]:
        from schema.types.instance import Instance  # noqa: PLC0415 - the two types name each other

        row = await info.context.loaders.instance.load(self.instance_row_id)
        if row is None:
            raise LookupError("an operation without an instance")
        return Instance.of(row)

    @strawberry.field(description="Every try to create the instance, in order; empty for other verbs.")
    async def attempts(self, info: Info) -> list[Attempt]:
        return [Attempt.of(row) for row in await info.context.loaders.attempts.load(self.row_id)]

    @classmethod
    def of(cls, row: tables.Operation) -> "Operation":
        error = None
        if row.error_code is not None:
            error = OperationError(
                code=row.error_code, message=row.error_message or "", retryable=bool(row.error_retryable)
            )
        return cls(
            row_id=row.id,
            instance_row_id=row.instance_id,
            id=strawberry.ID(ids.shown(ids.OPERATION, row.id)),
            kind=OperationKind(row.kind),
            status=OperationStatus(row.status),
            phase=OperationPhase(row.phase),
            progress=PROGRESS[OperationPhase(row.phase)],
            version=row.version,
            error=error,
            requested_by=strawberry.ID(ids.shown(ids.TOKEN, row.requested_by)) if row.requested_by else None,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            estimated_ready_at=row.estimated_ready_at,
        )
