"""Giving an instance other ports or a larger disk. The provider adds to the disk, so asking twice would add twice."""

from server.clock import now
from server.errors import NovitaError
from server.instances import moves, operations
from server.instances.observed import Seen, facts, seen
from server.jobs.asking import Standing, ask, gone, in_doubt, refuse, take_up, trouble, wait
from server.jobs.going_back import back_with_the_job
from server.jobs.handler import Reason, Tools, handles
from server.jobs.stop_instance import FIRST_LOOK
from server.novita.wire import Port, RemoteInstance
from server.queue.kinds import UpdateInstance
from server.queue.outcome import Again, Done, Outcome
from server.words import OperationPhase, OperationStatus


@handles(UpdateInstance, failed=back_with_the_job)
async def update_instance(work: UpdateInstance, tools: Tools) -> Outcome:
    standing = await take_up(work, tools, OperationPhase.UPDATING)
    if standing is None:
        return Done()
    try:
        remote = await tools.novita.instance(standing.novita_id)
        match seen(remote):
            case Seen.UP | Seen.DOWN:
                return await _update(work, standing, remote, tools)
            case Seen.GONE | Seen.GOING_AWAY:
                return await gone(work, tools)
            case _:
                return await wait(work, standing, remote, tools)
    except NovitaError as error:
        return await trouble(error, work, standing, tools)


async def _update(work: UpdateInstance, standing: Standing, remote: RemoteInstance, tools: Tools) -> Outcome:
    ports, growth = _other_ports(standing, remote), _growth(standing, remote)
    if growth is None:
        reason = Reason("PROVIDER_ERROR", "The provider does not say how large the disk is now.", retryable=True)
        return await refuse(work, tools, reason, found=seen(remote))
    if ports is None and growth == 0:
        return await _updated(work, standing, remote, tools)
    doubt = await in_doubt(standing, remote, work, tools, is_repeatable=growth == 0)
    if doubt is not None:
        return doubt
    if remote.jobs:
        return await wait(work, standing, remote, tools)  # it refuses everything until they are over

    async def edit(novita_id: str) -> None:
        await tools.novita.edit_instance(novita_id, ports=ports, expand_rootfs_gb=growth)

    if not await ask(standing, remote, edit, tools):
        return Done()
    return Again(after=FIRST_LOOK)


def _other_ports(standing: Standing, remote: RemoteInstance) -> list[Port] | None:
    """The ports as they shall be; None when they are so already, or nobody asked for other ones."""
    wanted = standing.operation.wanted.get("ports")
    if wanted is None:
        return None
    ports = [Port(port["port"], port["type"]) for port in wanted]
    is_so = {(port.port, port.type) for port in ports} == {(each.port, each.type) for each in remote.endpoints}
    return None if is_so else ports


def _growth(standing: Standing, remote: RemoteInstance) -> int | None:
    """GB to add to what is there; None when that is not known."""
    wanted = standing.operation.wanted.get("rootfs_size_gb")
    if wanted is None:
        return 0
    return None if remote.rootfs_gb is None else max(0, wanted - remote.rootfs_gb)


async def _updated(work: UpdateInstance, standing: Standing, remote: RemoteInstance, tools: Tools) -> Outcome:
    """What was asked for is there. A running machine's new ports have addresses a little later."""
    is_new = now() - (standing.operation.asked_at or standing.operation.created_at) < tools.settings.instance_max_wait
    if is_new and seen(remote) is Seen.UP and standing.operation.wanted.get("ports") and _lacks_addresses(remote):
        return await wait(work, standing, remote, tools)
    async with tools.write() as session:
        if await operations.still_open(session, work.operation_id) is None:
            return Done()
        await moves.note(
            session,
            work.instance_id,
            cause=standing.cause,
            observed_at=now(),
            **standing.operation.wanted,
            **facts(remote),
        )
        await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()


def _lacks_addresses(remote: RemoteInstance) -> bool:
    return any(not endpoint.address for endpoint in remote.endpoints)
