"""Starts an instance that has exited. A start that the provider refuses changes nothing there."""

from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncSession

from server.enums import OperationPhase
from server.instances.provider.states import MachineState, state_of
from server.jobs.failures import GONE, Reason, fail_work, revert, revert_with_job
from server.jobs.machine_run import is_another_run
from server.jobs.market.start_wait import NO_STOCK, wait_for_stock, wake_up
from server.jobs.provider_call import Call, Loaded, drive, fail_and_revert
from server.jobs.registry import JobContext, handles
from server.novita.models import RemoteInstance
from server.queue.handler import Done, Outcome
from server.queue.kinds import StartInstance


@handles(StartInstance, failed=revert_with_job)
async def start_instance(work: StartInstance, ctx: JobContext) -> Outcome:
    async def fail(session: AsyncSession, reason: Reason) -> None:
        await revert(session, work, reason, last_seen=MachineState.DOWN)

    waiting = await wake_up(work, ctx, fail)
    if isinstance(waiting, Done):
        return waiting

    async def refused(_loaded: Loaded, reason: Reason, last_seen: MachineState | None) -> Outcome:
        if waiting is not None and reason.code == NO_STOCK:
            return await wait_for_stock(work, waiting, reason, ctx, fail)
        return await (
            fail_work(work, ctx, reason) if reason == GONE else fail_and_revert(work, ctx, reason, last_seen=last_seen)
        )

    return await drive(
        work,
        ctx,
        phase=OperationPhase.STARTING,
        is_done=is_started,
        call=start(ctx),
        refused=None if waiting is None else refused,
        waiting=waiting,
    )


def start(ctx: JobContext) -> Callable[[Loaded, RemoteInstance], Call | None]:
    """What to send while the machine is down."""

    def call(_loaded: Loaded, remote: RemoteInstance) -> Call | None:
        return Call(ctx.novita.start_instance, repeatable=True) if state_of(remote) is MachineState.DOWN else None

    return call


def is_started(loaded: Loaded, remote: RemoteInstance) -> bool:
    """Up: an earlier run was killed after its call was accepted, or it was started elsewhere.

    Down in another run: it was started and is down again; the monitor finds out why.
    """
    if state_of(remote) is MachineState.DOWN:
        return is_another_run(loaded.operation, remote)
    return state_of(remote) in (MachineState.UP, MachineState.COMING_UP)
