"""Creates an accepted network volume at the provider: at most one, whichever process dies meanwhile.

As with machines: the attempt is committed before the call, its marker is part of the name, and an attempt without a
clear response is looked up until the provider has not listed the volume for a while. Only then is another one sent.
"""

from contextlib import suppress
from datetime import timedelta

import structlog
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Volume
from server.enums import VolumeStatus
from server.errors import NovitaError, WrongProvider
from server.events.event import EventType
from server.events.log_identity import restored_at
from server.instances.markers import create_part, derived_marker, marker_of, novita_name, random_marker
from server.jobs.creates.make_machine import send_timeout, unresolved_timeout
from server.jobs.failures import wait_for_provider
from server.jobs.registry import JobContext, growing_pause, handles
from server.novita.models import NetworkStorage
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import CreateVolume
from server.volumes import rows

log = structlog.get_logger(__name__)

PAUSE_MAX = timedelta(seconds=30)


async def keep_creating(session: AsyncSession, work: CreateVolume, failure: Failure) -> None:
    """For `failed`, a fault of ours: the volume may exist, so reconcile starts another job."""
    log.error("volume.create_failed", volume_id=work.volume_id, code=failure.code, error=failure.message)


@handles(CreateVolume, failed=keep_creating)
async def create_volume(work: CreateVolume, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        volume = await rows.lock(session, work.volume_id)
        if volume is None or volume.status != VolumeStatus.CREATING:
            return Done()  # created, failed, or deleted meanwhile: the delete looks for what was created
        moment = await rows.database_time(session)
        is_after_restore = volume.attempt == 0 and await restored_at(session) is not None
    waited = moment - volume.created_at
    try:
        if volume.asked_at is not None:
            return await _resolve(volume, moment - volume.asked_at, ctx)
        if is_after_restore and await _link_from_before(volume, work, ctx):
            return Done()
        return await _send(volume, work, waited, ctx)
    except NovitaError as error:  # of a look, which changes nothing
        return wait_for_provider(error, waited, longest=PAUSE_MAX)


async def _resolve(volume: Volume, unresolved_for: timedelta, ctx: JobContext) -> Outcome:
    """Find out whether a call without a response created the volume."""
    found = await find_marked(str(volume.marker), ctx)
    if found is not None:
        async with ctx.write() as session:
            await rows.link_created(session, volume, found.id, price_e5=found.price_e5)
        return Done()
    left = unresolved_timeout(ctx) - unresolved_for
    if left > timedelta(0):
        return Again(after=min(left, growing_pause(unresolved_for, longest=timedelta(seconds=5))))
    async with ctx.write() as session:
        locked = await rows.lock(session, volume.id)
        if locked is not None and locked.marker == volume.marker:
            await rows.change(session, volume.id, None, {"asked_at": None})
    return Again(after=timedelta(0))


async def find_marked(marker: str, ctx: JobContext) -> NetworkStorage | None:
    """The volume with this marker; None only if the provider's complete list has none."""
    return next((each for each in await ctx.novita.all_network_storages() if marker_of(each.name) == marker), None)


async def _link_from_before(volume: Volume, work: CreateVolume, ctx: JobContext) -> bool:
    """Link the volume that this request created before a backup was restored, if there is one."""
    part = create_part(volume.project_id, _create_of(work))
    for each in await ctx.novita.all_network_storages():
        marker = marker_of(each.name) or ""
        if marker.startswith(part):
            async with ctx.write() as session:
                await rows.lock(session, volume.id)
                if await _is_taken(session, marker):
                    continue  # of an earlier request with the same key, which is stored
                await rows.change(session, volume.id, None, {"marker": marker, "asked_at": func.clock_timestamp()})
                await rows.link_created(session, volume, each.id, price_e5=each.price_e5)
            return True
    return False


async def _send(volume: Volume, work: CreateVolume, waited: timedelta, ctx: JobContext) -> Outcome:
    await ctx.novita.check_create()  # while calls are suspended, none is sent
    # Before the attempt is committed: unresolved_timeout counts from that commit.
    asked_at = ctx.novita.now() - (ctx.settings.request_deadline - send_timeout(ctx)).total_seconds()
    number = volume.attempt + 1
    async with ctx.write() as session:
        locked = await rows.lock(session, volume.id)
        if locked is None or locked.status != VolumeStatus.CREATING or locked.asked_at is not None:
            return Again(after=timedelta(0))
        marker = await _new_marker(session, volume, _create_of(work), number)
        asking = {"attempt": number, "marker": marker, "asked_at": func.clock_timestamp()}
        volume = await rows.change(session, volume.id, None, asking)
    name = novita_name(volume.name, marker)
    try:
        novita_id = await ctx.novita.create_network_storage(
            cluster_id=volume.cluster_id, name=name, size_gb=volume.size_gb, asked_at=asked_at
        )
    except NovitaError as error:
        return await _not_created(volume, error, waited, ctx)
    price_e5 = await _price(novita_id, ctx)
    async with ctx.write() as session:
        await rows.link_created(session, volume, novita_id, price_e5=price_e5)
    return Done()


async def _new_marker(session: AsyncSession, volume: Volume, create: str, number: int) -> str:
    """Derived, unless a request with the same key was accepted before, long ago."""
    marker = derived_marker(volume.project_id, create, number)
    return random_marker() if await _is_taken(session, marker) else marker


async def _is_taken(session: AsyncSession, marker: str) -> bool:
    return await session.scalar(select(Volume.id).where(Volume.marker == marker)) is not None


async def _price(novita_id: str, ctx: JobContext) -> int | None:
    """The response to a create has no price; if the list can't be read now, reconcile reads it."""
    with suppress(NovitaError):
        page = await ctx.novita.network_storages(storage_id=novita_id)
        return next((each.price_e5 for each in page.items if each.id == novita_id), None)
    return None


async def _not_created(volume: Volume, error: NovitaError, waited: timedelta, ctx: JobContext) -> Outcome:
    if not error.is_certain_refusal:
        log.warning("volume.create_unknown", marker=volume.marker, error=error.code)
        return Again(after=timedelta(milliseconds=250))
    is_too_long = waited > ctx.settings.provider_max_wait and not isinstance(error, WrongProvider)
    if error.retryable and not is_too_long:
        async with ctx.write() as session:
            await rows.change(session, volume.id, None, {"asked_at": None})
        return wait_for_provider(error, waited, longest=PAUSE_MAX)
    async with ctx.write() as session:
        locked = await rows.lock(session, volume.id)
        if locked is None or locked.status != VolumeStatus.CREATING:
            await rows.change(session, volume.id, None, {"asked_at": None})
            return Done()
        failure = {"failure_code": error.code, "failure_message": error.message}
        failed = {"status": VolumeStatus.FAILED, "asked_at": None, **failure}
        await rows.change(session, volume.id, EventType.VOLUME_FAILED, failed)
    return Done()


def _create_of(work: CreateVolume) -> str:
    """What the markers of this create are derived from."""
    return work.request or str(work.volume_id)
