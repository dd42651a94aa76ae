"""Following a new instance until it runs, fails, or takes too long."""

from datetime import timedelta

from server.clock import now
from server.db.tables import Instance
from server.errors import NovitaError, ProviderNotFound
from server.instances import moves, operations
from server.instances.observed import Seen, facts, seen
from server.jobs.handler import Reason, Tools, fail_operation, fail_with_the_job, growing_pause, handles
from server.jobs.provider_wait import later
from server.novita.priority import Priority
from server.novita.wire import RemoteInstance
from server.queue.enqueue import enqueue
from server.queue.kinds import CheckHealth, MonitorInstance
from server.queue.outcome import Again, Done, Outcome
from server.words import InstanceStatus, OperationPhase, OperationStatus

# A machine that the provider made a moment ago may not be known to all of its own parts yet.
LATE_TO_APPEAR = timedelta(seconds=60)


@handles(MonitorInstance, failed=fail_with_the_job)
async def monitor_instance(work: MonitorInstance, tools: Tools) -> Outcome:
    async with tools.read() as session:
        instance = await session.get_one(Instance, work.instance_id)
        operation = await operations.open_operation(session, work.instance_id)
    if operation is None or operation.id != work.operation_id or instance.status != InstanceStatus.STARTING:
        return Done()  # deleted, failed or running already: no longer our business
    elapsed = now() - instance.status_since
    try:
        remote = await tools.novita.instance(str(instance.novita_id), priority=Priority.POLL)
    except ProviderNotFound:
        if elapsed < LATE_TO_APPEAR:
            return Again(after=timedelta(seconds=1))
        return await _fail(work, tools, Reason("GONE_AT_PROVIDER", "The provider no longer has it.", retryable=True))
    except NovitaError as error:
        return later(error, since=instance.status_since, tools=tools)

    match seen(remote):
        case Seen.UP:
            return await _running(work, remote, tools)
        case Seen.DOWN | Seen.GONE | Seen.GOING_AWAY:
            return await _fail(work, tools, _why_down(remote))
        case _ if elapsed > tools.settings.instance_max_wait:
            message = f"It was still {remote.status} after {elapsed.total_seconds():.0f} s."
            return await _fail(work, tools, Reason("READY_TIMEOUT", message, retryable=True))
        case _:
            async with tools.write() as session:
                cause = moves.Cause(work.operation_id, operation.requested_by)
                await moves.note(session, instance.id, cause=cause, observed_at=now(), **facts(remote))
            return Again(after=growing_pause(elapsed, longest=tools.settings.instance_poll_interval))


async def _running(work: MonitorInstance, remote: RemoteInstance, tools: Tools) -> Outcome:
    """The machine is up. What it serves is another question, unless it serves nothing over http."""
    async with tools.write() as session:
        operation = await operations.enter(session, work.operation_id, OperationPhase.CHECKING_HEALTH)
        instance = await moves.locked(session, work.instance_id)
        if operation is None or instance.status != InstanceStatus.STARTING:
            return Done()
        cause = moves.Cause(work.operation_id, operation.requested_by)
        instance = await moves.move(
            session, instance.id, InstanceStatus.RUNNING, cause=cause, observed_at=now(), **facts(remote)
        )
        if not any(endpoint["type"] == "http" for endpoint in instance.endpoints):
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


def _why_down(remote: RemoteInstance) -> Reason:
    if remote.status_error is not None:
        message = remote.status_error.message or remote.status_error.state
        return Reason(remote.status_error.state or "START_FAILED", message, retryable=False)
    return Reason("EXITED_EARLY", f"It became {remote.status} before it ever ran.", retryable=True)


async def _fail(work: MonitorInstance, tools: Tools, reason: Reason) -> Outcome:
    async with tools.write() as session:
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()
