"""Polls a started, restarted or migrated instance until it runs, fails or takes too long."""

from server.clock import now
from server.db.tables import Instance, Operation
from server.enums import InstanceStatus, OperationKind, OperationStatus
from server.errors import NovitaError, ProviderNotFound
from server.instances import operations, transitions
from server.instances.provider.states import STATES, MachineState, observed_fields, state_of
from server.jobs.failures import Reason, fail_with_job, fail_work, look_later
from server.jobs.machine_run import is_another_run
from server.jobs.provider_call import SETTLE_TIMEOUT, fail_gone
from server.jobs.registry import JobContext, growing_pause, handles
from server.jobs.startup import MISSING_POLL_INTERVAL, STARTING_UP, fail_down, mark_running, ready_timeout
from server.novita.models import RemoteInstance
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import MonitorStartup


@handles(MonitorStartup, failed=fail_with_job)
async def monitor_startup(work: MonitorStartup, ctx: JobContext) -> Outcome:
    async with ctx.read() as session:
        instance = await session.get_one(Instance, work.instance_id)
        operation = await operations.open_operation(session, work.instance_id)
    if operation is None or operation.id != work.operation_id or instance.status not in STARTING_UP:
        return Done()  # deleted, failed or already running
    since = operation.asked_at or instance.status_since
    elapsed = now() - since
    # A page may show less of a machine than its details. After a start that is enough: it was down before, so it can't
    # be the former run that is up.
    needs_details = operation.kind != OperationKind.START or bool(instance.ports or instance.tools)
    try:
        remote = await ctx.poll(str(instance.novita_id), needs_addresses=needs_details)
    except ProviderNotFound:
        if not await ctx.services.absences.confirm(work.instance_id, str(instance.novita_id)):
            return Again(after=MISSING_POLL_INTERVAL)
        return await fail_gone(work, ctx)
    except NovitaError as error:
        return look_later(error, since=since, ctx=ctx)

    state = state_of(remote)
    if (
        state in (MachineState.UP, MachineState.DOWN)
        and elapsed < SETTLE_TIMEOUT
        and not _shows_new_run(instance, operation, remote)
    ):
        return Again(after=growing_pause(elapsed, longest=SETTLE_TIMEOUT))  # the provider still shows the previous run
    match state:
        case MachineState.UP:
            return await mark_running(work, remote, ctx)
        case MachineState.DOWN if (
            operation.kind == OperationKind.MIGRATE and _was_down(operation) and not remote.status_error
        ):
            return await _finish_stopped_migration(work, remote, ctx)
        case MachineState.DOWN | MachineState.GONE | MachineState.GOING_AWAY:
            seen = instance.novita_status
            return await fail_down(work.instance_id, work.operation_id, remote, ctx, last_seen=seen)
        case _ if elapsed > ready_timeout(instance.ready_timeout_seconds, ctx):
            message = f"The instance was still {remote.status} after {elapsed.total_seconds():.0f} s."
            return await fail_work(work, ctx, Reason("READY_TIMEOUT", message, retryable=True))
        case _:
            async with ctx.write() as session:
                cause = transitions.Cause(work.operation_id, operation.requested_by)
                await transitions.update(
                    session, instance.id, cause=cause, observed_at=now(), **observed_fields(remote)
                )
            pause = growing_pause(elapsed, longest=ctx.settings.instance_poll_interval)
            return Again(after=ctx.services.poller.pause(pause))


def _shows_new_run(instance: Instance, operation: Operation, remote: RemoteInstance) -> bool:
    """Whether the provider shows the run after our call. True without a call: the machine was already starting."""
    was_seen_starting = STATES.get(instance.novita_status or "") is MachineState.COMING_UP
    return was_seen_starting or "run" not in operation.before or is_another_run(operation, remote)


def _was_down(operation: Operation) -> bool:
    return operation.before.get("status") == InstanceStatus.EXITED


async def _finish_stopped_migration(work: MonitorStartup, remote: RemoteInstance, ctx: JobContext) -> Outcome:
    """A machine that had exited may be moved without being started: the migration has succeeded."""
    async with ctx.write() as session:
        operation = await operations.lock_open(session, work.operation_id)
        if operation is None:
            return Done()
        cause = transitions.Cause(work.operation_id, operation.requested_by)
        await transitions.transition(
            session, work.instance_id, InstanceStatus.EXITED, cause=cause, observed_at=now(), **observed_fields(remote)
        )
        await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()
