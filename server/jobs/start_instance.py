"""Starting an instance that has exited. A start that the provider refuses changes nothing there."""

from server.errors import NovitaError
from server.instances.observed import Seen, seen
from server.jobs.asking import ask, follow, gone, in_doubt, is_another_run, take_up, trouble, wait
from server.jobs.going_back import back_with_the_job
from server.jobs.handler import Tools, handles
from server.queue.kinds import StartInstance
from server.queue.outcome import Done, Outcome
from server.words import OperationPhase


@handles(StartInstance, failed=back_with_the_job)
async def start_instance(work: StartInstance, tools: Tools) -> Outcome:
    standing = await take_up(work, tools, OperationPhase.STARTING)
    if standing is None:
        return Done()
    try:
        remote = await tools.novita.instance(standing.novita_id)
        match seen(remote):
            case Seen.UP | Seen.COMING_UP:
                # An earlier run was accepted and died before it could say so, or somebody started it elsewhere.
                return await follow(work, standing, tools)
            case Seen.DOWN if is_another_run(standing.operation, remote):
                return await follow(work, standing, tools)  # it was started, and is down again: there is a reason
            case Seen.DOWN:
                doubt = await in_doubt(standing, remote, work, tools, is_repeatable=True)
                if doubt is not None:
                    return doubt
                if not await ask(standing, remote, tools.novita.start_instance, tools):
                    return Done()
                return await follow(work, standing, tools)
            case Seen.GONE | Seen.GOING_AWAY:
                return await gone(work, tools)
            case _:
                return await wait(work, standing, remote, tools)
    except NovitaError as error:
        return await trouble(error, work, standing, tools)
