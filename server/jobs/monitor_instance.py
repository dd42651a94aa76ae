"""Polls a new instance until it runs, fails or takes too long."""

from datetime import timedelta

from server.clock import now
from server.enums import InstanceStatus
from server.errors import NovitaError, ProviderNotFound
from server.instances import transitions
from server.instances.provider.states import MachineState, is_unknown_run, observed_columns, observed_fields, state_of
from server.jobs.failures import Reason, fail_with_job, fail_work, look_later
from server.jobs.registry import JobContext, growing_pause, handles
from server.jobs.startup import APPEARANCE_TIMEOUT, MISSING_POLL_INTERVAL, fail_down, mark_running, ready_timeout
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import MonitorInstance


@handles(MonitorInstance, failed=fail_with_job)
async def monitor_instance(work: MonitorInstance, ctx: JobContext) -> Outcome:
    view = await ctx.services.monitor_views.of(work.instance_id)
    if view is None or view.operation_id != work.operation_id or view.status != InstanceStatus.STARTING:
        return Done()  # deleted, failed or already running
    elapsed = now() - view.status_since
    try:
        remote = await ctx.poll(str(view.novita_id), newer_than=view.known_since, needs_addresses=view.has_endpoints)
    except ProviderNotFound:
        if elapsed < APPEARANCE_TIMEOUT:
            return Again(after=timedelta(seconds=1))
        if not await ctx.services.absences.confirm(work.instance_id, str(view.novita_id)):
            return Again(after=MISSING_POLL_INTERVAL)
        reason = Reason("GONE_AT_PROVIDER", "The instance no longer exists at the provider.", retryable=True)
        return await fail_work(work, ctx, reason)
    except NovitaError as error:
        return look_later(error, since=view.status_since, ctx=ctx)

    match state_of(remote):
        case MachineState.UP:
            return await mark_running(work, remote, ctx)
        case MachineState.DOWN | MachineState.GONE | MachineState.GOING_AWAY:
            return await fail_down(work.instance_id, work.operation_id, remote, ctx, last_seen=view.novita_status)
        case _ if elapsed > ready_timeout(view.ready_timeout_seconds, ctx):
            message = f"The instance was still {remote.status} after {elapsed.total_seconds():.0f} s."
            return await fail_work(work, ctx, Reason("READY_TIMEOUT", message, retryable=True))
        case _:
            if view.knows(observed_columns(remote)) and not is_unknown_run(remote):
                ctx.services.monitor_views.seen(work.instance_id)
            else:
                async with ctx.write() as session:
                    cause = transitions.Cause(work.operation_id, view.requested_by)
                    await transitions.update(
                        session, work.instance_id, cause=cause, observed_at=now(), **observed_fields(remote)
                    )
            pause = growing_pause(elapsed, longest=ctx.settings.instance_poll_interval)
            return Again(after=ctx.services.poller.pause(pause))
