"""Stops an instance; the operation ends when the provider reports it exited."""

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.enums import InstanceStatus, OperationPhase
from server.instances import transitions
from server.instances.provider.states import MachineState, observed_fields, state_of
from server.jobs.failures import revert_with_job
from server.jobs.provider_call import Call, Loaded, drive
from server.jobs.registry import JobContext, handles
from server.novita.models import RemoteInstance
from server.queue.handler import Outcome
from server.queue.kinds import StopInstance


@handles(StopInstance, failed=revert_with_job)
async def stop_instance(work: StopInstance, ctx: JobContext) -> Outcome:
    def is_done(_loaded: Loaded, remote: RemoteInstance) -> bool:
        return state_of(remote) is MachineState.DOWN

    def call(_loaded: Loaded, remote: RemoteInstance) -> Call | None:
        return Call(ctx.novita.stop_instance, repeatable=True) if state_of(remote) is MachineState.UP else None

    return await drive(
        work,
        ctx,
        phase=OperationPhase.STOPPING,
        is_done=is_done,
        call=call,
        finish=_mark_exited,
        follows_by_polls=True,
    )


async def _mark_exited(session: AsyncSession, loaded: Loaded, remote: RemoteInstance) -> None:
    await transitions.transition(
        session,
        loaded.instance.id,
        InstanceStatus.EXITED,
        cause=loaded.cause,
        observed_at=now(),
        **observed_fields(remote),
    )
