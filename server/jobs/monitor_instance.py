"""Following a new instance until it runs, fails, or takes too long."""

from datetime import timedelta

from server.clock import now
from server.errors import NovitaError, ProviderNotFound
from server.instances import moves
from server.instances.observed import Seen, facts, seen
from server.jobs.coming_up import LATE_TO_APPEAR, failed, is_up, why_down
from server.jobs.handler import Reason, Tools, fail_with_the_job, growing_pause, handles
from server.jobs.provider_wait import later
from server.queue.kinds import MonitorInstance
from server.queue.outcome import Again, Done, Outcome
from server.words import InstanceStatus


@handles(MonitorInstance, failed=fail_with_the_job)
async def monitor_instance(work: MonitorInstance, tools: Tools) -> Outcome:
    standing = await tools.services.standings.of(work.instance_id)
    if standing is None or standing.operation_id != work.operation_id or standing.status != InstanceStatus.STARTING:
        return Done()  # deleted, failed or running already: no longer our business
    elapsed = now() - standing.status_since
    try:
        lookout = tools.services.lookout
        remote = await lookout.look(str(standing.novita_id), asker=tools.claim.job_id, newer_than=standing.known_since)
    except ProviderNotFound:
        if elapsed < LATE_TO_APPEAR:
            return Again(after=timedelta(seconds=1))
        return await failed(work, tools, Reason("GONE_AT_PROVIDER", "The provider no longer has it.", retryable=True))
    except NovitaError as error:
        return later(error, since=standing.status_since, tools=tools)

    match seen(remote):
        case Seen.UP:
            return await is_up(work, remote, tools)
        case Seen.DOWN | Seen.GONE | Seen.GOING_AWAY:
            return await failed(work, tools, why_down(remote))
        case _ if elapsed > tools.settings.instance_max_wait:
            message = f"It was still {remote.status} after {elapsed.total_seconds():.0f} s."
            return await failed(work, tools, Reason("READY_TIMEOUT", message, retryable=True))
        case _:
            if standing.knows(facts(remote)):
                tools.services.standings.seen(work.instance_id)
            else:
                async with tools.write() as session:
                    cause = moves.Cause(work.operation_id, standing.requested_by)
                    await moves.note(session, work.instance_id, cause=cause, observed_at=now(), **facts(remote))
            return Again(after=growing_pause(elapsed, longest=tools.settings.instance_poll_interval))
