"""Reads single machines: a spot instance's from its announced reclaim on, and one whose endpoint does not respond."""

from datetime import timedelta

from server.clock import now
from server.db.tables import Instance
from server.enums import InstanceStatus
from server.errors import NovitaError, ProviderNotFound
from server.instances import transitions
from server.instances.provider.drift import apply_snapshot
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.status import UP
from server.jobs.failures import wait_for_provider
from server.jobs.registry import JobContext, growing_pause, handles
from server.novita.transport.concurrency import CallPriority
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import LookAtMachine, WatchReclaim

RECLAIMABLE = UP | {InstanceStatus.STOPPING}
POLL_INTERVAL_MAX = timedelta(minutes=1)
# A reclaim that is later than this was called off silently; from then on reconcile is enough.
LATE_MAX = timedelta(hours=1)


@handles(WatchReclaim)
async def watch_reclaim(work: WatchReclaim, ctx: JobContext) -> Outcome:
    async with ctx.read() as session:
        instance = await session.get_one(Instance, work.instance_id)
    due = instance.spot_reclaim_at
    if due is None or instance.novita_id is None or InstanceStatus(instance.status) not in RECLAIMABLE:
        return Done()
    if due > now():
        return Again(after=due - now())  # postponed
    asked_at = now()
    try:
        # Not a shared poll: the exact time of the call decides whether the response is newer than the row.
        remote = await ctx.novita.instance(instance.novita_id, priority=CallPriority.POLL)
        snapshot = ProviderSnapshot.of(remote, asked_at=asked_at)
    except ProviderNotFound:
        if not await ctx.services.absences.confirm(instance.id, instance.novita_id):
            return Again(after=POLL_INTERVAL_MAX)
        snapshot = None
    except NovitaError as error:
        return wait_for_provider(error, now() - due, longest=POLL_INTERVAL_MAX)
    async with ctx.write() as session:
        cause, machine = transitions.Cause(), instance.novita_id
        await apply_snapshot(session, instance.id, snapshot, machine=machine, asked_at=asked_at, cause=cause)
        after = await transitions.lock(session, instance.id)
    is_over = InstanceStatus(after.status) not in RECLAIMABLE or now() - due > LATE_MAX
    return Done() if is_over else Again(after=growing_pause(now() - due, longest=POLL_INTERVAL_MAX))


@handles(LookAtMachine)
async def look_at_machine(work: LookAtMachine, ctx: JobContext) -> Outcome:
    """Once; what is not found out now, reconcile finds out later."""
    async with ctx.read() as session:
        instance = await session.get_one(Instance, work.instance_id)
    if instance.novita_id is None or InstanceStatus(instance.status) not in UP:
        return Done()
    asked_at = now()
    try:
        remote = await ctx.novita.instance(instance.novita_id, priority=CallPriority.POLL)
    except NovitaError:
        return Done()
    async with ctx.write() as session:
        snapshot = ProviderSnapshot.of(remote, asked_at=asked_at)
        cause, machine = transitions.Cause(), instance.novita_id
        await apply_snapshot(session, instance.id, snapshot, machine=machine, asked_at=asked_at, cause=cause)
    return Done()
