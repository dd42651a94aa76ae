"""Changes the ports or enlarges the disk of an instance. A second call would enlarge the disk twice.

What the provider shows is compared with what we requested, not with all that it has: it may add ports of its own.
"""

from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.enums import OperationPhase
from server.instances import transitions
from server.instances.provider.drift import UPDATE_NOT_VISIBLE_YET
from server.instances.provider.states import MachineState, observed_fields, state_of
from server.jobs.failures import Reason, revert_with_job
from server.jobs.provider_call import Call, Loaded, drive
from server.jobs.registry import JobContext, handles
from server.novita.models import Port, RemoteInstance
from server.queue.handler import Outcome
from server.queue.kinds import UpdateInstance

# The provider says that an edit takes effect within about a minute. An accepted one that shows nothing by then is done.
EDIT_TIMEOUT = timedelta(seconds=90)


@handles(UpdateInstance, failed=revert_with_job)
async def update_instance(work: UpdateInstance, ctx: JobContext) -> Outcome:
    def is_done(loaded: Loaded, remote: RemoteInstance) -> bool:
        return _is_updated(loaded, remote) and not _waits_for_addresses(loaded, remote, ctx)

    def call(loaded: Loaded, remote: RemoteInstance) -> Call | Reason | None:
        if state_of(remote) not in (MachineState.UP, MachineState.DOWN) or _is_updated(loaded, remote):
            return None
        ports, growth = _new_ports(loaded, remote), _growth(loaded, remote)
        if growth is None:
            return Reason("PROVIDER_ERROR", "The provider does not report the size of the disk.", retryable=True)

        async def edit(novita_id: str) -> None:
            await ctx.novita.edit_instance(novita_id, ports=ports, expand_rootfs_gb=growth)

        return Call(edit, repeatable=growth == 0)

    return await drive(
        work,
        ctx,
        phase=OperationPhase.UPDATING,
        is_done=is_done,
        call=call,
        waits_for_jobs=True,
        finish=_save,
        settles_after=EDIT_TIMEOUT,
    )


def _is_updated(loaded: Loaded, remote: RemoteInstance) -> bool:
    is_settled = state_of(remote) in (MachineState.UP, MachineState.DOWN)
    size_gb = loaded.operation.wanted.get("rootfs_size_gb")
    has_size = size_gb is None or (remote.rootfs_gb is not None and remote.rootfs_gb >= size_gb)
    return is_settled and has_size and _new_ports(loaded, remote) is None


def _new_ports(loaded: Loaded, remote: RemoteInstance) -> list[Port] | None:
    """The requested ports; None if the machine has them already, or no change was requested."""
    requested = loaded.operation.wanted.get("ports")
    if requested is None:
        return None
    ports = [Port(port["port"], port["type"]) for port in requested]
    wanted = {(port.port, port.type) for port in ports}
    removed = {(port["port"], port["type"]) for port in loaded.instance.ports} - wanted
    shown = {(each.port, each.type) for each in remote.endpoints}
    return None if wanted <= shown and not removed & shown else ports


def _growth(loaded: Loaded, remote: RemoteInstance) -> int | None:
    """GB to add to the disk; None if its present size is unknown. An accepted growth may not be visible yet, so the
    size that we requested before counts too."""
    size_gb = loaded.operation.wanted.get("rootfs_size_gb")
    if size_gb is None:
        return 0
    if remote.rootfs_gb is None:
        return None
    return max(0, size_gb - max(remote.rootfs_gb, loaded.instance.rootfs_size_gb))


def _waits_for_addresses(loaded: Loaded, remote: RemoteInstance, ctx: JobContext) -> bool:
    """The new ports of a running machine get their addresses a little later."""
    operation = loaded.operation
    is_new = now() - (operation.asked_at or operation.created_at) < ctx.settings.instance_max_wait
    wanted = {(port["port"], port["type"]) for port in operation.wanted.get("ports") or ()}
    lacks_addresses = any(not each.address for each in remote.endpoints if (each.port, each.type) in wanted)
    return is_new and state_of(remote) is MachineState.UP and lacks_addresses


async def _save(session: AsyncSession, loaded: Loaded, remote: RemoteInstance) -> None:
    await transitions.update(
        session,
        loaded.instance.id,
        cause=loaded.cause,
        observed_at=now(),
        status_reason=loaded.instance.status_reason if _is_updated(loaded, remote) else UPDATE_NOT_VISIBLE_YET,
        **loaded.operation.wanted,
        **observed_fields(remote),
    )
