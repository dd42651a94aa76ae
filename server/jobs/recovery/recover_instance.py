"""Brings an instance back after a reclaim or a loss, attempt by attempt, as long as its incident is open.

It acts only on what the provider says about the machine by its id. While that can't be read, nothing is done.
"""

from collections.abc import Sequence
from datetime import timedelta

from server.clock import now
from server.db.tables import Instance
from server.enums import RecoveryTrigger, StartStep
from server.errors import NotFound, NovitaError, ProviderNotFound
from server.instances import operations, transitions
from server.instances.limits.of_token import regions_of_run
from server.instances.provider.states import MachineState, state_of
from server.instances.recovery import incident, notice, spec
from server.jobs.failures import wait_for_provider
from server.jobs.registry import JobContext, handles
from server.market.waits import WAITING_FOR_CAPACITY
from server.novita.transport.concurrency import CallPriority
from server.queue.control import release_key
from server.queue.enqueue import enqueue
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import RecoverInstance
from server.recovery import attempt, replacement
from server.recovery.relocation import Wanted, highest_price

# While an attempt is under way, or the machine runs although its instance has failed.
LOOK_AGAIN = timedelta(seconds=30)
# While an attempt waits for capacity: its end makes the job due.
LOOK_RARELY = timedelta(hours=1)
UNREADABLE_PAUSE_MAX = timedelta(minutes=1)


@handles(RecoverInstance)
async def recover_instance(work: RecoverInstance, ctx: JobContext) -> Outcome:
    async with ctx.read() as session:
        instance = await session.get(Instance, work.instance_id)
        running = None if instance is None else await operations.open_operation(session, instance.id)
    if instance is None:
        return Done()
    if not incident.is_open(instance):
        return await _replace(instance, ctx, is_busy=running is not None)
    if running is not None or instance.status not in incident.DOWN:
        is_asleep = instance.status_reason == WAITING_FOR_CAPACITY
        return await _sleep(instance, LOOK_RARELY, ctx) if is_asleep else Again(after=LOOK_AGAIN)
    wait = attempt.next_look(instance) - now()
    if wait > timedelta(0):
        return await _sleep(instance, wait, ctx)
    is_over = incident.gives_up_at(instance) <= now()
    try:
        state = MachineState.GONE if is_over else await _look(instance, ctx)
        price_e5 = (
            None if is_over else await _highest_price(instance, spec.read(instance.recovery or {}).all_steps, ctx)
        )
    except NovitaError as error:
        return wait_for_provider(error, now() - instance.status_since, longest=UNREADABLE_PAUSE_MAX)
    if state not in (MachineState.DOWN, MachineState.GONE, MachineState.UNKNOWN):
        return Again(after=LOOK_AGAIN)  # it runs, or is about to: what is wrong is no matter of machines
    return await _act(instance, state, ctx, is_over=is_over, price_e5=price_e5)


async def _sleep(seen: Instance, pause: timedelta, ctx: JobContext) -> Outcome:
    """Leave the rest to another job. `incident.keep_job` makes that one due; the pause of a job that still runs would
    outlast what is written before its end is."""
    async with ctx.write() as session:
        instance = await transitions.lock(session, seen.id)
        if instance.version != seen.version:
            return Again(after=timedelta(0))  # changed since it was looked at
        work, key = incident.job_of(instance)
        if await release_key(session, ctx.claim.job_id, unique_key=key):
            await enqueue(
                session, work, project_id=instance.project_id, instance_id=instance.id, after=pause, unique_key=key
            )
    return Done()


async def _replace(instance: Instance, ctx: JobContext, *, is_busy: bool) -> Outcome:
    """Between the notice and the reclaim: make another machine first, if that is wanted."""
    if not notice.is_open(instance):
        return Done()
    wait = timedelta(0) if is_busy else notice.due_at(instance) - now()
    if is_busy or wait > timedelta(0):
        return Again(after=min(max(wait, LOOK_AGAIN), UNREADABLE_PAUSE_MAX))
    try:
        remote = await ctx.novita.instance(str(instance.novita_id), priority=CallPriority.POLL)
        price_e5 = await _highest_price(instance, (StartStep.RELOCATE,), ctx)
    except NovitaError as error:
        return wait_for_provider(error, timedelta(0), longest=UNREADABLE_PAUSE_MAX)
    is_announced = remote.spot_reclaim_at is not None and remote.spot_status != "running"
    if state_of(remote) is not MachineState.UP or not is_announced or attempt.is_reclaim(remote):
        return Again(after=LOOK_AGAIN)  # called off, or the end has begun: the poller writes what it is
    async with ctx.write() as session:
        current = await transitions.lock(session, instance.id)
        if current.version == instance.version and await operations.open_operation(session, instance.id) is None:
            await replacement.begin(session, current, highest_price_e5=price_e5)
    return Again(after=LOOK_AGAIN)


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
        if await ctx.services.absences.confirm(instance.id, instance.novita_id):
            return MachineState.GONE
        raise
    state = state_of(remote)
    is_reclaim = attempt.trigger_of(instance) is RecoveryTrigger.RECLAIM
    if state is MachineState.DOWN and is_reclaim and attempt.is_first(instance) and not attempt.is_reclaim(remote):
        return MachineState.UNKNOWN
    return MachineState.GOING_DOWN if state is MachineState.UNKNOWN else state


async def _highest_price(instance: Instance, steps: Sequence[StartStep], ctx: JobContext) -> int:
    """Read before the transaction that admits the attempt."""
    wanted = spec.read(instance.recovery or {})
    async with ctx.read() as session:
        within = await regions_of_run(session, instance.id)
    places = Wanted.by_recovery(wanted, within=within)
    return await highest_price(ctx.catalog, instance, steps, places)


async def _act(seen: Instance, state: MachineState, ctx: JobContext, *, is_over: bool, price_e5: int | None) -> Outcome:
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
            await attempt.begin(session, instance, highest_price_e5=price_e5)
    except NotFound:
        return Done()
    return Again(after=LOOK_AGAIN)
