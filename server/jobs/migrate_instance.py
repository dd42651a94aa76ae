"""Moves an instance to another node once: each move loses what was written to its disk meanwhile."""

from collections.abc import Callable

from server.enums import OperationPhase
from server.instances.provider.states import MachineState, state_of
from server.jobs.failures import revert_with_job
from server.jobs.machine_run import is_another_run
from server.jobs.provider_call import Call, Loaded, drive
from server.jobs.registry import JobContext, handles
from server.novita.models import RemoteInstance
from server.queue.handler import Outcome
from server.queue.kinds import MigrateInstance


@handles(MigrateInstance, failed=revert_with_job)
async def migrate_instance(work: MigrateInstance, ctx: JobContext) -> Outcome:
    return await drive(
        work, ctx, phase=OperationPhase.MIGRATING, is_done=is_migrated, call=migration(ctx), waits_for_jobs=True
    )


def migration(ctx: JobContext) -> Callable[[Loaded, RemoteInstance], Call | None]:
    """What to send while the machine runs or is down."""

    def call(_loaded: Loaded, remote: RemoteInstance) -> Call | None:
        can_move = state_of(remote) in (MachineState.UP, MachineState.DOWN)
        return Call(ctx.novita.migrate_instance, repeatable=False) if can_move else None

    return call


def is_migrated(loaded: Loaded, remote: RemoteInstance) -> bool:
    if state_of(remote) in (MachineState.UP, MachineState.DOWN):
        return is_another_run(loaded.operation, remote)
    return state_of(remote) is MachineState.COMING_UP and loaded.operation.asked_at is not None
