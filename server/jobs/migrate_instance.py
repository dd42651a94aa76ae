"""Moving an instance to another node: once, because what was written meanwhile is lost each time."""

from server.errors import NovitaError
from server.instances.observed import Seen, seen
from server.jobs.asking import ask, follow, gone, in_doubt, is_another_run, take_up, trouble, wait
from server.jobs.going_back import back_with_the_job
from server.jobs.handler import Tools, handles
from server.queue.kinds import MigrateInstance
from server.queue.outcome import Done, Outcome
from server.words import OperationPhase


@handles(MigrateInstance, failed=back_with_the_job)
async def migrate_instance(work: MigrateInstance, tools: Tools) -> Outcome:
    standing = await take_up(work, tools, OperationPhase.MIGRATING)
    if standing is None:
        return Done()
    try:
        remote = await tools.novita.instance(standing.novita_id)
        match seen(remote):
            case Seen.COMING_UP if standing.operation.asked_at is not None:
                return await follow(work, standing, tools)
            case Seen.UP | Seen.DOWN if is_another_run(standing.operation, remote):
                return await follow(work, standing, tools)
            case Seen.UP | Seen.DOWN:
                doubt = await in_doubt(standing, remote, work, tools, is_repeatable=False)
                if doubt is not None:
                    return doubt
                if remote.jobs:
                    return await wait(work, standing, remote, tools)  # it refuses everything until they are over
                if not await ask(standing, remote, tools.novita.migrate_instance, tools):
                    return Done()
                return await follow(work, standing, tools)
            case Seen.GONE | Seen.GOING_AWAY:
                return await gone(work, tools)
            case _:
                return await wait(work, standing, remote, tools)
    except NovitaError as error:
        return await trouble(error, work, standing, tools)
