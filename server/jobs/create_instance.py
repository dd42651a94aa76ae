"""Creates an accepted instance at the provider, also one that a restored backup has forgotten."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Attempt, Instance
from server.enums import InstanceStatus, OperationPhase
from server.errors import NovitaError
from server.events.log_identity import restored_at
from server.instances import attempts, operations, transitions
from server.instances.markers import create_part, marker_of
from server.instances.placement import place, requirements_of
from server.instances.provider.settle import link_created, note_doubt
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import MachineState, state_of
from server.instances.provider.unlinked import Origin, unlinked_machines
from server.jobs.creates.make_machine import Making, make_machine, resolve_attempt
from server.jobs.failures import Reason, fail_operation, fail_with_job, retry_later
from server.jobs.market.waiting import offers_of_older, provider_since
from server.jobs.registry import JobContext, handles
from server.market import waits
from server.market.waits import Waiting
from server.novita import models
from server.queue.handler import Done, Outcome
from server.queue.kinds import CreateInstance

# How long after a restored backup a request may be repeated whose first acceptance was lost with it.
REPEAT_WINDOW = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows as they were at the beginning of this run."""

    instance: Instance
    live: Attempt | None
    unresolved_for: timedelta  # how long the result of `live` has been unknown
    past: tuple[Attempt, ...]
    since: datetime
    is_after_restore: bool
    waiting: Waiting | None
    wanted: frozenset[tuple[str, str, str]]


@handles(CreateInstance, failed=fail_with_job)
async def create_instance(work: CreateInstance, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.PLACING)
        if operation is None:
            return Done()  # superseded or cancelled: a delete removes what was created
        instance = await transitions.lock(session, work.instance_id)
        waiting = await waits.load(session, operation)
        if waiting is not None and not waiting.is_awake_in(ctx.claim.job_id):
            return Done()  # it sleeps, or has another job
        live = await attempts.live_of_instance(session, instance.id)
        loaded = Loaded(
            instance=instance,
            live=live,
            unresolved_for=timedelta(0) if live is None else attempts.age(live),
            past=tuple(await attempts.of_operation(session, work.operation_id)),
            since=operation.created_at,
            is_after_restore=_is_after_restore(work, operation.created_at, await restored_at(session)),
            waiting=waiting,
            wanted=await offers_of_older(session, instance, operation, waiting),
        )
        if live is not None:
            await note_doubt(session, live)
    if instance.status != InstanceStatus.CREATING:
        return Done()  # an earlier run created it and enqueued its monitor, then died
    try:
        if loaded.live is not None:
            return await resolve_attempt(loaded.live, loaded.unresolved_for, ctx)
        if loaded.is_after_restore and await _adopt_from_before(loaded, work, ctx):
            return Done()
        return await make_machine(_making(loaded, work, ctx), ctx)
    except NovitaError as error:
        # Placing and searching change nothing, so they can be repeated. A refused search says nothing about a machine.
        since = provider_since(operation, waiting, ctx)
        return retry_later(error, since=since, ctx=ctx, is_look=loaded.live is not None)


def _is_after_restore(work: CreateInstance, created_at: datetime, restored: datetime | None) -> bool:
    """Whether this create may have been carried out in a time that a restored backup has forgotten."""
    if restored is None:
        return False
    return created_at < restored + (REPEAT_WINDOW if work.request is not None else timedelta(0))


async def _adopt_from_before(loaded: Loaded, work: CreateInstance, ctx: JobContext) -> bool:
    """Link the machine that this create made before the backup was restored, if there is one."""
    instance = loaded.instance
    known = {attempt.marker for attempt in loaded.past}
    part = create_part(instance.project_id, _create_of(work))
    found = [each for each in await ctx.services.markers.find_create(part) if marker_of(each.name) not in known]
    free = await unlinked_machines(
        ctx.services.database, [ProviderSnapshot.of(each, asked_at=now()) for each in found if _is_staying(each)]
    )
    lost = next((machine.snapshot.id for machine in free if machine.origin is Origin.LOST), None)
    remote = next((each for each in found if each.id == lost), None)
    if remote is None:
        return False
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is not None:
            marker = str(marker_of(remote.name))
            attempt = await attempts.begin_found(session, instance, work.operation_id, remote, marker)
            await link_created(session, attempt, remote.id)
    return True


def _is_staying(remote: models.RemoteInstance) -> bool:
    return state_of(remote) not in (MachineState.GOING_AWAY, MachineState.GONE)


def _create_of(work: CreateInstance) -> str:
    """What the markers of this create are derived from."""
    return work.request or str(work.operation_id)


def _making(loaded: Loaded, work: CreateInstance, ctx: JobContext) -> Making:
    async def fail(session: AsyncSession, reason: Reason) -> None:
        await fail_operation(session, work.instance_id, work.operation_id, reason)

    requirements = requirements_of(loaded.instance)
    return Making(
        work,
        loaded.instance,
        loaded.past,
        loaded.since,
        create=_create_of(work),
        place=lambda: place(ctx.catalog, requirements),
        fail=fail,
        requirements=requirements,
        waiting=loaded.waiting,
        wanted=loaded.wanted,
    )
