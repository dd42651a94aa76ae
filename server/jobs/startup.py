"""Steps shared by the jobs that poll a machine until it runs."""

from datetime import timedelta

from server.clock import now
from server.enums import InstanceStatus, OperationPhase, OperationStatus
from server.instances import operations, transitions
from server.instances.provider.states import observed_fields
from server.jobs.failures import Reason
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
# The provider's word for what failed, as our code; its message is kept too.
FAILURE_CODES = {"pulling": "IMAGE_PULL_FAILED", "containerExited": "CONTAINER_EXITED"}


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


def failure_reason(remote: RemoteInstance) -> Reason:
    """Why a machine that should start is down, as far as the provider says."""
    if remote.status_error is not None:
        state = remote.status_error.state
        return Reason(FAILURE_CODES.get(state, "START_FAILED"), remote.status_error.message or state, retryable=False)
    return Reason("EXITED_EARLY", f"The instance became {remote.status} before it ran.", retryable=True)


def ready_timeout(seconds: int | None, ctx: JobContext) -> timedelta:
    """How long a machine may take to run: as requested for the instance, else as the server is configured."""
    return ctx.settings.instance_max_wait if seconds is None else timedelta(seconds=seconds)
