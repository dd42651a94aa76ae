"""Stops an instance; the operation ends when the provider reports it exited."""

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.enums import InstanceStatus, OperationPhase
from server.instances import operations, transitions
from server.instances.provider.states import MachineState, observed_fields, state_of
from server.jobs.failures import revert_with_job
from server.jobs.machine_run import run_fingerprint
from server.jobs.provider_call import SETTLE_TIMEOUT, Call, Loaded, drive, unresolved_timeout
from server.jobs.registry import JobContext, handles
from server.novita.models import RemoteInstance
from server.queue.handler import Outcome
from server.queue.kinds import StopInstance


@handles(StopInstance, failed=revert_with_job)
async def stop_instance(work: StopInstance, ctx: JobContext) -> Outcome:
    def is_done(loaded: Loaded, remote: RemoteInstance) -> bool:
        is_down = state_of(remote) is MachineState.DOWN
        return is_down and not _may_change(loaded, remote, within=unresolved_timeout(ctx))

    def call(loaded: Loaded, remote: RemoteInstance) -> Call | None:
        if state_of(remote) is not MachineState.UP or _may_change(loaded, remote, within=SETTLE_TIMEOUT):
            return None
        return Call(ctx.novita.stop_instance, repeatable=True)

    return await drive(
        work,
        ctx,
        phase=OperationPhase.STOPPING,
        is_done=is_done,
        call=call,
        finish=_mark_exited,
        follows_by_polls=True,
    )


def _may_change(loaded: Loaded, remote: RemoteInstance, *, within: timedelta) -> bool:
    """Whether the call of the operation that this stop has ended may still take effect: it would start the machine."""
    former = loaded.operation.wanted.get("after")
    if former is None or operations.is_accepted(loaded.operation) or former["run"] != run_fingerprint(remote):
        return False
    return now() - datetime.fromisoformat(former["asked_at"]) < within


async def _mark_exited(session: AsyncSession, loaded: Loaded, remote: RemoteInstance) -> None:
    await transitions.transition(
        session,
        loaded.instance.id,
        InstanceStatus.EXITED,
        cause=loaded.cause,
        observed_at=now(),
        **observed_fields(remote),
    )
