"""Removes a machine that its instance no longer needs. It has no other end: the machine would be billed for ever."""

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, Machine
from server.enums import InstanceStatus
from server.errors import NovitaError, ProviderNotFound
from server.instances import machines
from server.instances.provider.states import MachineState, state_of, times_of
from server.instances.recovery.spec import LONGEST_DRAIN
from server.jobs.failures import wait_for_provider
from server.jobs.machine_run import accepted_by, look_before_removal
from server.jobs.registry import JobContext, growing_pause, handles
from server.novita.models import RemoteInstance
from server.queue.enqueue import enqueue
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import RemoveMachine

S = InstanceStatus
PAUSE_MAX = timedelta(minutes=2)
# How often a job looks whether a drain is over before its time.
DRAIN_LOOK = timedelta(seconds=15)
# What no longer runs, or is started anew, leaves nothing to drain; and there are never more than two machines.
DRAINS_NO_MORE = frozenset({S.STOPPING, S.EXITED, S.STARTING, S.FAILED, S.DELETING, S.DELETED})
POLL_INTERVAL_MAX = timedelta(seconds=10)
# After the job itself has failed, which is a fault of ours.
NEXT_JOB_AFTER = timedelta(minutes=5)


async def keep_removing(session: AsyncSession, work: RemoveMachine, failure: Failure) -> None:
    """For `failed`: the machine may exist, so another job goes on."""
    instance = await session.get_one(Instance, work.instance_id)
    await enqueue(session, work, project_id=instance.project_id, instance_id=instance.id, after=NEXT_JOB_AFTER)


@handles(RemoveMachine, failed=keep_removing)
async def remove_machine(work: RemoveMachine, ctx: JobContext) -> Outcome:
    async with ctx.read() as session:
        machine = await machines.to_remove(session, work.instance_id, work.novita_id)
        instance = await session.get_one(Instance, work.instance_id)
    if machine is None or machine.removing_from is None:
        return Done()
    waited = now() - machine.removing_from
    if _is_draining(instance, -waited):
        return Again(after=min(-waited, DRAIN_LOOK))
    if waited < timedelta(0):
        async with ctx.write() as session:
            machine = await machines.end_drain(session, machine)
        waited = timedelta(0)
    try:
        is_gone = await _delete_and_look(machine, ctx)
    except NovitaError as error:
        return wait_for_provider(error, waited, longest=PAUSE_MAX)
    if not is_gone:
        return Again(after=growing_pause(waited, longest=POLL_INTERVAL_MAX))
    async with ctx.write() as session:
        await machines.end_removed(session, machine)
    return Done()


def _is_draining(instance: Instance, left: timedelta) -> bool:
    """Not if more than any drain is left: its end was written before the clock was set back."""
    return timedelta(0) < left <= LONGEST_DRAIN and instance.status not in DRAINS_NO_MORE


async def _delete_and_look(machine: Machine, ctx: JobContext) -> bool:
    """True when it is gone. Repeating the delete is harmless.

    It is looked at before each delete: it may have been reclaimed since it served, or never have been looked at, or an
    earlier delete without a response may have been done.
    """
    is_sent = machine.removal_sent_at is not None  # and may have been done
    is_accepted, is_gone = machine.removal_accepted_at is not None, False
    remote: RemoteInstance | None = None
    try:
        remote = await look_before_removal(
            machine.novita_id, ctx, unsure_since=machine.removal_sent_at, is_accepted=is_accepted
        )
    except ProviderNotFound as error:
        is_gone = error.is_certain_refusal
        if is_accepted and is_gone:
            return True
    if remote is not None:
        is_sent = state_of(remote) in (MachineState.GONE, MachineState.GOING_AWAY)
        async with ctx.write() as session:
            await machines.note_seen(session, machine, remote.status, times_of(remote))
        if is_sent and is_accepted:
            return state_of(remote) is MachineState.GONE

    sent_at: datetime | None = None

    async def note_sending() -> None:
        nonlocal sent_at
        if not is_sent:
            async with ctx.write() as session:
                await machines.note_sent(session, machine)
        sent_at = now()

    try:
        await ctx.novita.delete_instance(machine.novita_id, is_repeatable=False, before_sending=note_sending)
    except ProviderNotFound:
        return await _confirm_missing(machine, ctx)
    known_at = (machine.removal_sent_at if is_gone else None) or accepted_by(sent_at, ctx)
    await ctx.record(
        lambda session: machines.note_removal(session, machine, at=known_at),
        call="delete",
        machine=machine.novita_id,
        accepted_at=known_at.isoformat(),
    )
    return False


async def _confirm_missing(machine: Machine, ctx: JobContext) -> bool:
    """One answer proves nothing: two that are GONE_GRACE apart, and the list."""
    async with ctx.write() as session:
        missing_for = await machines.note_missing(session, machine)
    return missing_for >= ctx.settings.gone_grace and not await ctx.services.absences.is_listed(machine.novita_id)
