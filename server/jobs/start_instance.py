"""Starts an instance that has exited. A start that the provider refuses changes nothing there."""

from collections.abc import Callable

from server.enums import OperationPhase
from server.instances.provider.states import MachineState, state_of
from server.jobs.failures import revert_with_job
from server.jobs.provider_call import Call, Loaded, drive, is_another_run
from server.jobs.registry import JobContext, handles
from server.novita.models import RemoteInstance
from server.queue.handler import Outcome
from server.queue.kinds import StartInstance


@handles(StartInstance, failed=revert_with_job)
async def start_instance(work: StartInstance, ctx: JobContext) -> Outcome:
    return await drive(work, ctx, phase=OperationPhase.STARTING, is_done=is_started, call=start(ctx))


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
