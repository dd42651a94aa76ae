"""Ends operations that failed: marks the instance failed or reverts it, or retries the job later."""

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Operation
from server.enums import InstanceStatus, OperationKind
from server.errors import AccountRefusal, CircuitOpen, IllegalTransition, NovitaError, RateLimited, WrongProvider
from server.instances import attempts, operations, transitions
from server.instances.provider.absence import GONE_AT_PROVIDER
from server.instances.provider.ends import End
from server.instances.provider.settle import settle_later
from server.instances.provider.states import MachineState
from server.instances.status import BEGINS_A_RUN
from server.jobs.registry import JobContext, growing_pause
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import OperationWork
from server.spend.machine_times import MachineTimes

PAUSE_MAX = timedelta(seconds=30)
PAUSE_MIN = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an operation failed: a code for programs, a message for people. `end` is why its machine is down."""

    code: str
    message: str
    retryable: bool
    end: End | None = None


GONE = Reason(GONE_AT_PROVIDER, "The instance no longer exists at the provider.", retryable=False)


async def fail_operation(session: AsyncSession, instance_id: UUID, operation_id: UUID, reason: Reason) -> None:
    """Fail the operation and its instance together. Changes nothing if the operation has already ended.

    If a create attempt is still in doubt, the instance says so, and a job finds out whether there is a machine.
    """
    end = {} if reason.end is None else reason.end.columns
    operation = await operations.fail(
        session,
        operation_id,
        code=reason.code,
        message=reason.message,
        retryable=reason.retryable,
        exit_code=end.get("exit_code"),
    )
    if operation is None:
        return
    cause = transitions.Cause(operation_id, operation.requested_by)
    in_doubt = await attempts.live_of_instance(session, instance_id)
    gone: dict[str, Any] = {}
    if reason.code == GONE_AT_PROVIDER:
        missing_since = (await transitions.lock(session, instance_id)).missing_since
        gone = {"novita_status": "removed", "times": MachineTimes(stopped_at=missing_since)}
    with contextlib.suppress(IllegalTransition):  # it has failed or was deleted before
        await transitions.transition(
            session,
            instance_id,
            InstanceStatus.FAILED,
            cause=cause,
            status_reason=None if in_doubt is None else attempts.MACHINE_MAY_EXIST,
            failure_code=reason.code,
            failure_message=reason.message,
            **end,
            **gone,
        )
    if in_doubt is not None:
        await settle_later(session, in_doubt, await transitions.lock(session, instance_id))


async def fail_with_job(session: AsyncSession, work: Any, failure: Failure) -> None:
    """For `failed`: the operation fails with its job."""
    await fail_operation(
        session, work.instance_id, work.operation_id, Reason(failure.code, failure.message, failure.retryable)
    )


async def fail_work(work: OperationWork, ctx: JobContext, reason: Reason) -> Outcome:
    """Fail the operation and its instance in a transaction of its own, and end the job."""
    async with ctx.write() as session:
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


async def revert_with_job(session: AsyncSession, work: Any, failure: Failure) -> None:
    """For `failed`: fail the operation, and revert the instance as far as its state is known."""
    await revert(session, work, Reason(failure.code, failure.message, failure.retryable), last_seen=None)


async def revert(session: AsyncSession, work: OperationWork, reason: Reason, *, last_seen: MachineState | None) -> None:
    """Fail the operation and revert the instance. `last_seen` is the provider's last known state, if any."""
    operation = await operations.fail(
        session, work.operation_id, code=reason.code, message=reason.message, retryable=reason.retryable
    )
    to = None if operation is None else _revert_target(operation, last_seen)
    if operation is None or to is None:
        return
    fields: dict[str, Any] = {"status_reason": reason.code}
    if to is InstanceStatus.FAILED:
        fields = {"failure_code": reason.code, "failure_message": reason.message}
    if to in (InstanceStatus.RUNNING, InstanceStatus.READY):
        # The run continues, so its times are still true.
        times = {name: operation.before.get(name) for name in ("running_at", "ready_at")}
        fields |= {name: datetime.fromisoformat(value) for name, value in times.items() if value is not None}
    cause = transitions.Cause(operation.id, operation.requested_by)
    with contextlib.suppress(IllegalTransition):  # its status has changed otherwise
        await transitions.transition(session, work.instance_id, to, cause=cause, **fields)


def _revert_target(operation: Operation, last_seen: MachineState | None) -> InstanceStatus | None:
    status = operation.before.get("status")
    if status is None:
        return None  # the operation did not change the status
    # Also for a start that may have been accepted: the next start reads the machine first and finds it running.
    if last_seen is MachineState.DOWN or operation.kind == OperationKind.START:
        return InstanceStatus.EXITED
    if last_seen is None and operation.asked_at is not None:
        return InstanceStatus.FAILED  # the provider was called and the result is unknown
    if status == InstanceStatus.HEALTH_CHECKING or status in BEGINS_A_RUN:
        return InstanceStatus.RUNNING
    return InstanceStatus(status)


def retry_later(error: NovitaError, *, since: datetime, ctx: JobContext, is_look: bool = False) -> Again:
    """Run the job again without counting an attempt; raises an error that is permanent or has lasted too long.

    A refused look at a machine is not permanent: it says nothing about the machine.
    """
    waited = now() - since
    is_too_long = waited > ctx.settings.provider_max_wait and not isinstance(error, WrongProvider)
    if not (error.retryable or is_look) or is_too_long:
        raise error
    return wait_for_provider(error, waited)


def look_later(error: NovitaError, *, since: datetime, ctx: JobContext) -> Again:
    """The same for a job that only looks: it waits as long as the provider refuses to show the machine."""
    if isinstance(error, AccountRefusal) or not error.retryable:
        return wait_for_provider(error, now() - since)
    return retry_later(error, since=since, ctx=ctx)


def wait_for_provider(error: NovitaError, waited: timedelta, *, longest: timedelta = PAUSE_MAX) -> Again:
    retry_after = error.retry_after if isinstance(error, RateLimited | CircuitOpen) else None
    return Again(after=max(retry_after or timedelta(0), growing_pause(waited, longest=longest), PAUSE_MIN))
