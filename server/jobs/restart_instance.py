"""Restarting an instance: once, because a second restart would interrupt what the first one brought up."""

from server.errors import NovitaError
from server.instances.observed import Seen, seen
from server.jobs.asking import ask, follow, gone, in_doubt, is_another_run, take_up, trouble, wait
from server.jobs.going_back import back_with_the_job
from server.jobs.handler import Tools, handles
from server.queue.kinds import RestartInstance
from server.queue.outcome import Done, Outcome
from server.words import OperationPhase


@handles(RestartInstance, failed=back_with_the_job)
async def restart_instance(work: RestartInstance, tools: Tools) -> Outcome:
    standing = await take_up(work, tools, OperationPhase.RESTARTING)
    if standing is None:
        return Done()
    try:
        remote = await tools.novita.instance(standing.novita_id)
        match seen(remote):
            case Seen.COMING_UP:
                return await follow(work, standing, tools)
            case Seen.UP | Seen.DOWN if is_another_run(standing.operation, remote):
                return await follow(work, standing, tools)
            case Seen.UP | Seen.DOWN as found:
                is_up = found is Seen.UP
                doubt = await in_doubt(standing, remote, work, tools, is_repeatable=not is_up)
                if doubt is not None:
                    return doubt
                if remote.jobs:
                    return await wait(work, standing, remote, tools)  # it refuses everything until they are over
                # What has exited, perhaps by itself, is up again after a start; a restart would be refused.
                call = tools.novita.restart_instance if is_up else tools.novita.start_instance
                if not await ask(standing, remote, call, tools):
                    return Done()
                return await follow(work, standing, tools)
            case Seen.GONE | Seen.GOING_AWAY:
                return await gone(work, tools)
            case _:
                return await wait(work, standing, remote, tools)
    except NovitaError as error:
        return await trouble(error, work, standing, tools)
