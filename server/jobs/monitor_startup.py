"""Following a machine that was started, restarted or migrated until it runs again, fails, or takes too long."""

from server.clock import now
from server.db.tables import Instance, Operation
from server.errors import NovitaError, ProviderNotFound
from server.instances import moves, operations
from server.instances.observed import SEEN, Seen, facts, seen
from server.jobs.asking import SETTLES_WITHIN, gone, is_another_run
from server.jobs.coming_up import RISING, failed, is_up, why_down
from server.jobs.handler import Reason, Tools, fail_with_the_job, growing_pause, handles
from server.jobs.provider_wait import later
from server.novita.wire import RemoteInstance
from server.queue.kinds import MonitorStartup
from server.queue.outcome import Again, Done, Outcome
from server.words import InstanceStatus, OperationKind, OperationStatus


@handles(MonitorStartup, failed=fail_with_the_job)
async def monitor_startup(work: MonitorStartup, tools: Tools) -> Outcome:
    async with tools.read() as session:
        instance = await session.get_one(Instance, work.instance_id)
        operation = await operations.open_operation(session, work.instance_id)
    if operation is None or operation.id != work.operation_id or instance.status not in RISING:
        return Done()  # deleted, failed or running already: no longer our business
    since = operation.asked_at or instance.status_since
    elapsed = now() - since
    try:
        remote = await tools.look(str(instance.novita_id))
    except ProviderNotFound:
        return await gone(work, tools)
    except NovitaError as error:
        return later(error, since=since, tools=tools)

    found = seen(remote)
    if found in (Seen.UP, Seen.DOWN) and elapsed < SETTLES_WITHIN and not _has_begun(instance, operation, remote):
        return Again(after=growing_pause(elapsed, longest=SETTLES_WITHIN))  # it still shows the run before
    match found:
        case Seen.UP:
            return await is_up(work, remote, tools)
        case Seen.DOWN if operation.kind == OperationKind.MIGRATE and _was_down(operation) and not remote.status_error:
            return await _moved_and_down(work, remote, tools)
        case Seen.DOWN | Seen.GONE | Seen.GOING_AWAY:
            return await failed(work, tools, why_down(remote))
        case _ if elapsed > tools.settings.instance_max_wait:
            message = f"It was still {remote.status} after {elapsed.total_seconds():.0f} s."
            return await failed(work, tools, Reason("READY_TIMEOUT", message, retryable=True))
        case _:
            async with tools.write() as session:
                cause = moves.Cause(work.operation_id, operation.requested_by)
                await moves.note(session, instance.id, cause=cause, observed_at=now(), **facts(remote))
            return Again(after=growing_pause(elapsed, longest=tools.settings.instance_poll_interval))


def _has_begun(instance: Instance, operation: Operation, remote: RemoteInstance) -> bool:
    """Whether what we see came after the asking. Nothing to compare with: nobody asked, it was found on its way."""
    was_seen_rising = SEEN.get(instance.novita_status or "") is Seen.COMING_UP
    return was_seen_rising or "run" not in operation.before or is_another_run(operation, remote)


def _was_down(operation: Operation) -> bool:
    return operation.before.get("status") == InstanceStatus.EXITED


async def _moved_and_down(work: MonitorStartup, remote: RemoteInstance, tools: Tools) -> Outcome:
    """A machine that had exited may be moved without being started: that is what was asked for, too."""
    async with tools.write() as session:
        operation = await operations.still_open(session, work.operation_id)
        if operation is None:
            return Done()
        cause = moves.Cause(work.operation_id, operation.requested_by)
        await moves.move(
            session, work.instance_id, InstanceStatus.EXITED, cause=cause, observed_at=now(), **facts(remote)
        )
        await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()
