"""An operation as callers see it."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.types.billing import BillingMode
from schema.types.money import Money
from schema.types.node import Node
from schema.words import described
from server.db import tables
from server.words import PROGRESS, AttemptStatus, OperationKind, OperationPhase, OperationStatus

if TYPE_CHECKING:
    from schema.types.instance import Instance
    from schema.types.token import Token

described(
    OperationKind,
    description="The verb of an operation.",
    values={
        "CREATE": "Make it.",
        "START": "Start one that has exited.",
        "STOP": "Stop it.",
        "RESTART": "Stop it and start it again at once.",
        "MIGRATE": "Move it to another node of its region.",
        "UPDATE": "Change it while it runs.",
        "DELETE": "Remove it.",
    },
)
described(
    OperationStatus,
    description="Where an operation stands. QUEUED and RUNNING are open.",
    values={
        "QUEUED": "Accepted; no worker has taken it up yet.",
        "RUNNING": "Under way.",
        "SUCCEEDED": "Done.",
        "FAILED": "Not done: see `error`.",
        "CANCELLED": "Called off by `cancelOperation`.",
        "SUPERSEDED": "A delete took its place.",
    },
)
described(
    OperationPhase,
    description="What an operation is doing now.",
    values={
        "WAITING": "Waiting for a worker.",
        "PLACING": "Finding a region and a product, and asking for it.",
        "STARTING": "Asking the provider to start it.",
        "RESTARTING": "Asking the provider to restart it.",
        "MIGRATING": "Asking the provider to move it.",
        "PROVISIONING": "The provider has accepted; the machine is on its way up.",
        "CHECKING_HEALTH": "The machine is up; what it serves is being probed.",
        "STOPPING": "Seeing that it stops.",
        "UPDATING": "Seeing that it changes.",
        "DELETING": "Seeing that it is gone.",
        "OVER": "It is over, however it ended.",
    },
)
described(
    AttemptStatus,
    description="How one try to create ended. While ASKING or UNKNOWN, nobody knows yet whether a machine was made.",
    values={
        "ASKING": "The provider is being asked.",
        "UNKNOWN": "No clear answer came: the provider's list will tell.",
        "CREATED": "A machine was made.",
        "REJECTED": "The provider refused, or the region had nothing that fits.",
        "ABSENT": "No clear answer came, and by now it is certain that no machine was made.",
    },
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
    billing_mode: BillingMode | None = strawberry.field(description="How it would have been paid.")
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
            billing_mode=BillingMode.of(row.billing_mode),
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
    token_row_id: strawberry.Private[UUID | None]
    kind: OperationKind = strawberry.field(description="The verb.")
    status: OperationStatus = strawberry.field(description="Where it stands.")
    phase: OperationPhase = strawberry.field(description="What it is doing now.")
    progress: int = strawberry.field(
        description="How far it is, 0 to 100, by its phase: WAITING 0; PLACING, STARTING, RESTARTING, MIGRATING 10; "
        "PROVISIONING 40; STOPPING, UPDATING, DELETING 50; CHECKING_HEALTH 80; OVER 100. Never goes back."
    )
    version: int = strawberry.field(description="Grows by one with every change; a higher one is newer.")
    error: OperationError | None = strawberry.field(description="Why it failed; only when it has FAILED.")
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

    @strawberry.field(description="The token that asked for it; null where nobody did, as when it was found changed.")
    async def requested_by(self, info: Info) -> Annotated["Token", strawberry.lazy("schema.types.token")] | None:
        from schema.types.token import Token  # noqa: PLC0415 - loaded by whoever needs it

        return await Token.found(info, self.token_row_id)

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
            token_row_id=row.requested_by,
            id=strawberry.ID(ids.shown(ids.OPERATION, row.id)),
            kind=OperationKind(row.kind),
            status=OperationStatus(row.status),
            phase=OperationPhase(row.phase),
            progress=PROGRESS[OperationPhase(row.phase)],
            version=row.version,
            error=error,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            estimated_ready_at=row.estimated_ready_at,
        )
