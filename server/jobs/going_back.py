"""Where an instance goes when the provider did not do what was asked: back, because nothing was changed."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Operation
from server.errors import IllegalMove
from server.instances import moves, operations
from server.instances.observed import Seen
from server.jobs.handler import Reason
from server.queue.outcome import Failure
from server.words import InstanceStatus, OperationKind


async def go_back(
    session: AsyncSession, instance_id: UUID, operation_id: UUID, reason: Reason, *, found: Seen | None
) -> None:
    """End the operation badly and put the instance back. `found` is what the provider last showed, None if nothing."""
    operation = await operations.fail(
        session, operation_id, code=reason.code, message=reason.message, retryable=reason.retryable
    )
    if operation is None:
        return
    try:
        await put_back(session, instance_id, operation, reason, found=found)
    except IllegalMove:
        return  # it went elsewhere meanwhile


async def back_with_the_job(session: AsyncSession, work: Any, failure: Failure) -> None:
    """The job is given up: its operation has failed, and the instance goes back as far as that is known to be true."""
    reason = Reason(failure.code, failure.message, failure.retryable)
    await go_back(session, work.instance_id, work.operation_id, reason, found=None)


async def put_back(
    session: AsyncSession, instance_id: UUID, operation: Operation, reason: Reason, *, found: Seen | None
) -> None:
    to = _where(operation, found)
    if to is None:
        return
    fields: dict[str, Any] = {"status_reason": reason.code}
    if to is InstanceStatus.FAILED:
        fields = {"failure_code": reason.code, "failure_message": reason.message}
    if to in (InstanceStatus.RUNNING, InstanceStatus.READY):
        # The run goes on, so its times are still true.
        times = {name: operation.before.get(name) for name in ("running_at", "ready_at")}
        fields |= {name: datetime.fromisoformat(value) for name, value in times.items() if value is not None}
    await moves.move(session, instance_id, to, cause=moves.Cause(operation.id, operation.requested_by), **fields)


def _where(operation: Operation, found: Seen | None) -> InstanceStatus | None:
    status = operation.before.get("status")
    if status is None:
        return None  # an operation that moved nothing
    # A start that may have been accepted goes back as well: whoever starts it again looks first, and finds it running.
    if found is Seen.DOWN or operation.kind == OperationKind.START:
        return InstanceStatus.EXITED
    if found is None and operation.asked_at is not None:
        return InstanceStatus.FAILED  # it was asked and nobody can tell what became of it
    if status == InstanceStatus.HEALTH_CHECKING:
        return InstanceStatus.RUNNING
    return InstanceStatus(status)
