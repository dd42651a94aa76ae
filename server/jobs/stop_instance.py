"""Stopping an instance, and saying so only once the provider shows it exited."""

from datetime import timedelta

from server.clock import now
from server.errors import NovitaError
from server.instances import moves, operations
from server.instances.observed import Seen, facts, seen
from server.jobs.asking import Standing, ask, gone, in_doubt, take_up, trouble, wait
from server.jobs.going_back import back_with_the_job
from server.jobs.handler import Tools, handles
from server.novita.wire import RemoteInstance
from server.queue.kinds import StopInstance
from server.queue.outcome import Again, Done, Outcome
from server.words import InstanceStatus, OperationPhase, OperationStatus

FIRST_LOOK = timedelta(milliseconds=500)


@handles(StopInstance, failed=back_with_the_job)
async def stop_instance(work: StopInstance, tools: Tools) -> Outcome:
    standing = await take_up(work, tools, OperationPhase.STOPPING)
    if standing is None:
        return Done()
    try:
        remote = await tools.novita.instance(standing.novita_id)
        match seen(remote):
            case Seen.DOWN:
                return await _stopped(work, standing, remote, tools)
            case Seen.UP:
                doubt = await in_doubt(standing, remote, work, tools, is_repeatable=True)
                if doubt is not None:
                    return doubt
                if not await ask(standing, remote, tools.novita.stop_instance, tools):
                    return Done()
                return Again(after=FIRST_LOOK)
            case Seen.GONE | Seen.GOING_AWAY:
                return await gone(work, tools)
            case _:
                return await wait(work, standing, remote, tools)
    except NovitaError as error:
        return await trouble(error, work, standing, tools)


async def _stopped(work: StopInstance, standing: Standing, remote: RemoteInstance, tools: Tools) -> Outcome:
    async with tools.write() as session:
        if await operations.still_open(session, work.operation_id) is None:
            return Done()
        await moves.move(
            session,
            work.instance_id,
            InstanceStatus.EXITED,
            cause=standing.cause,
            observed_at=now(),
            **facts(remote),
        )
        await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()
