"""Brings an instance back after a reclaim or a loss, attempt by attempt, as long as its incident is open.

It acts only on what the provider says about the machine by its id. While that can't be read, nothing is done.
"""

from datetime import timedelta

from server.clock import now
from server.db.tables import Instance
from server.enums import RecoveryTrigger
from server.errors import NotFound, NovitaError, ProviderNotFound
from server.instances import operations, transitions
from server.instances.provider.states import MachineState, state_of
from server.instances.recovery import incident
from server.jobs.failures import wait_for_provider
from server.jobs.registry import JobContext, handles
from server.novita.transport.concurrency import CallPriority
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import RecoverInstance
from server.recovery import attempt

# While an attempt is under way, or the machine runs although its instance has failed.
LOOK_AGAIN = timedelta(seconds=30)
UNREADABLE_PAUSE_MAX = timedelta(minutes=1)


@handles(RecoverInstance)
async def recover_instance(work: RecoverInstance, ctx: JobContext) -> Outcome:
    async with ctx.read() as session:
        instance = await session.get(Instance, work.instance_id)
        running = None if instance is None else await operations.open_operation(session, instance.id)
    if instance is None or not incident.is_open(instance):
        return Done()
    if running is not None or instance.status not in incident.DOWN:
        return Again(after=LOOK_AGAIN)
    wait = attempt.next_look(instance) - now()
    if wait > timedelta(0):
        return Again(after=wait)
    is_over = incident.gives_up_at(instance) <= now()
    try:
        state = MachineState.GONE if is_over else await _look(instance, ctx)
    except NovitaError as error:
        return wait_for_provider(error, now() - instance.status_since, longest=UNREADABLE_PAUSE_MAX)
    if state not in (MachineState.DOWN, MachineState.GONE, MachineState.UNKNOWN):
        return Again(after=LOOK_AGAIN)  # it runs, or is about to: what is wrong is no matter of machines
    return await _act(instance, state, ctx, is_over=is_over)


async def _look(instance: Instance, ctx: JobContext) -> MachineState:
    """DOWN after a reclaim or in a later attempt, GONE, or what else the provider says; UNKNOWN: no incident."""
    if instance.novita_id is None:
        return MachineState.GONE
    is_known = instance.novita_status == "removed"
    try:
        remote = await ctx.novita.instance(instance.novita_id, priority=CallPriority.POLL)
    except ProviderNotFound:
        if is_known:
            return MachineState.GONE  # confirmed by two looks before it was written
        if await ctx.services.absences.is_confirmed(instance.id, instance.novita_id):
            return MachineState.GONE
        raise
    state = state_of(remote)
    is_reclaim = attempt.trigger_of(instance) is RecoveryTrigger.RECLAIM
    if state is MachineState.DOWN and is_reclaim and attempt.is_first(instance) and not attempt.is_reclaim(remote):
        return MachineState.UNKNOWN
    return MachineState.GOING_DOWN if state is MachineState.UNKNOWN else state


async def _act(seen: Instance, state: MachineState, ctx: JobContext, *, is_over: bool) -> Outcome:
    try:
        async with ctx.write() as session:
            instance = await transitions.lock(session, seen.id)
            if instance.version != seen.version or not incident.is_open(instance):
                return Again(after=timedelta(0))  # changed since it was looked at
            if is_over:
                await attempt.give_up(session, instance, "GIVE_UP_AFTER")
                return Done()
            if state is MachineState.UNKNOWN:
                await attempt.forget(session, instance)
                return Done()
            if state is MachineState.GONE and instance.novita_status != "removed" and instance.novita_id is not None:
                cause = transitions.Cause()
                instance = await transitions.update(session, instance.id, cause=cause, novita_status="removed")
            if not attempt.can_begin(instance):
                await attempt.give_up(session, instance, "NO_START_STEP")
                return Done()
            await attempt.begin(session, instance)
    except NotFound:
        return Done()
    return Again(after=LOOK_AGAIN)
