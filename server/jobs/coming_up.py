"""A machine on its way up: what is shared by everything that follows one until it runs."""

from datetime import timedelta
from typing import Protocol
from uuid import UUID

from server.clock import now
from server.instances import moves, operations
from server.instances.observed import facts
from server.jobs.handler import Reason, Tools, fail_operation
from server.novita.wire import RemoteInstance
from server.probes.plan import wants_check
from server.queue.enqueue import enqueue
from server.queue.kinds import CheckHealth
from server.queue.outcome import Done, Outcome
from server.words import InstanceStatus, OperationPhase, OperationStatus

# The statuses of an instance whose machine is on its way up.
RISING = frozenset({InstanceStatus.STARTING, InstanceStatus.RESTARTING, InstanceStatus.MIGRATING})

# A machine that the provider made a moment ago may not be known to all of its own parts yet.
LATE_TO_APPEAR = timedelta(seconds=60)
# The provider's word for where it went wrong, as a code of ours; its message is kept beside it.
WENT_WRONG = {"pulling": "IMAGE_PULL_FAILED", "containerExited": "CONTAINER_EXITED"}


class Rise(Protocol):
    """The work of following one instance."""

    @property
    def instance_id(self) -> UUID: ...

    @property
    def operation_id(self) -> UUID: ...


async def is_up(work: Rise, remote: RemoteInstance, tools: Tools) -> Outcome:
    """The machine is up. What it serves is another question, unless it serves nothing over http."""
    async with tools.write() as session:
        operation = await operations.enter(session, work.operation_id, OperationPhase.CHECKING_HEALTH)
        instance = await moves.locked(session, work.instance_id)
        if operation is None or instance.status not in RISING:
            return Done()
        cause = moves.Cause(work.operation_id, operation.requested_by)
        instance = await moves.move(
            session, instance.id, InstanceStatus.RUNNING, cause=cause, observed_at=now(), **facts(remote)
        )
        if not wants_check(instance.health_check, instance.ports, instance.endpoints):
            await moves.move(session, instance.id, InstanceStatus.READY, cause=cause)
            await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
            return Done()
        await moves.move(session, instance.id, InstanceStatus.HEALTH_CHECKING, cause=cause)
        await enqueue(
            session,
            CheckHealth(instance_id=instance.id, operation_id=work.operation_id),
            project_id=instance.project_id,
            instance_id=instance.id,
            unique_key=f"health {work.operation_id}",
        )
    return Done()


def why_down(remote: RemoteInstance) -> Reason:
    """Why a machine that should be coming up is down, as far as the provider says."""
    if remote.status_error is not None:
        state = remote.status_error.state
        return Reason(WENT_WRONG.get(state, "START_FAILED"), remote.status_error.message or state, retryable=False)
    return Reason("EXITED_EARLY", f"It became {remote.status} before it ever ran.", retryable=True)


async def failed(work: Rise, tools: Tools, reason: Reason) -> Outcome:
    async with tools.write() as session:
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()
