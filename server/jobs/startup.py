"""Steps shared by the jobs that poll a machine until it runs."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from server.clock import now
from server.enums import InstanceStatus, OperationPhase, OperationStatus
from server.instances import operations, transitions
from server.instances.provider.ends import SPOT_RECLAIMED, find_end
from server.instances.provider.states import observed_fields
from server.jobs.failures import Reason, fail_operation
from server.jobs.registry import JobContext
from server.novita.models import RemoteInstance
from server.probes.plan import needs_check
from server.queue.enqueue import enqueue
from server.queue.handler import Done, Outcome
from server.queue.kinds import CheckHealth, OperationWork

# The statuses of an instance whose machine is starting.
STARTING_UP = frozenset({InstanceStatus.STARTING, InstanceStatus.RESTARTING, InstanceStatus.MIGRATING})

# A machine that the provider has just created may be unknown to some of its servers for this long.
APPEARANCE_TIMEOUT = timedelta(seconds=60)
# Between looks at a machine that is missing and not confirmed to be gone.
MISSING_POLL_INTERVAL = timedelta(seconds=10)
PULLING = "pulling"  # the provider's word for what failed


async def mark_running(work: OperationWork, remote: RemoteInstance, ctx: JobContext) -> Outcome:
    """The machine is up: the instance is RUNNING, then checked, or READY if it serves nothing over HTTP."""
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.CHECKING_HEALTH)
        instance = await transitions.lock(session, work.instance_id)
        if operation is None or instance.status not in STARTING_UP:
            return Done()
        cause = transitions.Cause(work.operation_id, operation.requested_by)
        instance = await transitions.transition(
            session, instance.id, InstanceStatus.RUNNING, cause=cause, observed_at=now(), **observed_fields(remote)
        )
        if not needs_check(instance.health_check, instance.ports, instance.endpoints):
            await transitions.transition(session, instance.id, InstanceStatus.READY, cause=cause)
            await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
            return Done()
        await transitions.transition(session, instance.id, InstanceStatus.HEALTH_CHECKING, cause=cause)
        await enqueue(
            session,
            CheckHealth(instance_id=instance.id, operation_id=work.operation_id),
            project_id=instance.project_id,
            instance_id=instance.id,
            unique_key=f"health {work.operation_id}",
        )
    return Done()


async def fail_down(
    instance_id: UUID, operation_id: UUID, remote: RemoteInstance, ctx: JobContext, *, last_seen: str | None
) -> Outcome:
    """The machine is down: fail the operation and its instance, with what the provider says about it."""
    async with ctx.write() as session:
        operation = await operations.lock_open(session, operation_id)
        if operation is not None:
            cause = transitions.Cause(operation_id, operation.requested_by)
            observed: dict[str, Any] = {"observed_at": now(), **observed_fields(remote)}
            await transitions.update(session, instance_id, cause=cause, **observed)
            await fail_operation(session, instance_id, operation_id, _failure_reason(remote, last_seen))
    return Done()


def _failure_reason(remote: RemoteInstance, last_seen: str | None) -> Reason:
    error = remote.status_error
    if error is not None and error.state == PULLING:
        return Reason("IMAGE_PULL_FAILED", error.message or error.state, retryable=False)
    end = find_end(remote, last_seen=last_seen)
    if end is not None:
        return Reason(end.reason, end.message, retryable=end.reason == SPOT_RECLAIMED, end=end)
    if error is not None:
        return Reason("START_FAILED", error.message or error.state, retryable=False)
    return Reason("EXITED_EARLY", f"The instance became {remote.status} before it was ready.", retryable=True)


def ready_timeout(seconds: int | None, ctx: JobContext) -> timedelta:
    """How long a machine may take to run: as requested for the instance, else as the server is configured."""
    return ctx.settings.instance_max_wait if seconds is None else timedelta(seconds=seconds)
