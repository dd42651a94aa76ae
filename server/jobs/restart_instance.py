"""Restarts an instance once: a second restart would interrupt what the first one brought up."""

from server.enums import OperationPhase
from server.instances.provider.states import MachineState, state_of
from server.jobs.failures import revert_with_job
from server.jobs.machine_run import is_another_run
from server.jobs.provider_call import Call, Loaded, drive
from server.jobs.registry import JobContext, handles
from server.novita.models import RemoteInstance
from server.queue.handler import Outcome
from server.queue.kinds import RestartInstance


@handles(RestartInstance, failed=revert_with_job)
async def restart_instance(work: RestartInstance, ctx: JobContext) -> Outcome:
    def call(_loaded: Loaded, remote: RemoteInstance) -> Call | None:
        match state_of(remote):
            case MachineState.UP:
                return Call(ctx.novita.restart_instance, repeatable=False)
            case MachineState.DOWN:  # the provider refuses to restart it; a start brings it up again
                return Call(ctx.novita.start_instance, repeatable=True)
            case _:
                return None

    return await drive(work, ctx, phase=OperationPhase.RESTARTING, is_done=_is_accepted, call=call, waits_for_jobs=True)


def _is_accepted(loaded: Loaded, remote: RemoteInstance) -> bool:
    if state_of(remote) in (MachineState.UP, MachineState.DOWN):
        return is_another_run(loaded.operation, remote)
    return state_of(remote) is MachineState.COMING_UP
