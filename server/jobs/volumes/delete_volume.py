"""Deletes a network volume at the provider; it has no other end, because a volume that stays is billed."""

from datetime import timedelta

import structlog
from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Volume
from server.enums import VolumeStatus
from server.errors import NovitaError, ProviderNotFound
from server.events.event import EventType
from server.jobs.creates.make_machine import unresolved_timeout
from server.jobs.failures import wait_for_provider
from server.jobs.registry import JobContext, growing_pause, handles
from server.jobs.volumes.create_volume import find_marked
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import DeleteVolume
from server.volumes import rows

log = structlog.get_logger(__name__)

PAUSE_MAX = timedelta(minutes=2)


async def keep_deleting(session: AsyncSession, work: DeleteVolume, failure: Failure) -> None:
    """For `failed`, a fault of ours: the volume stays DELETING, so reconcile starts another job."""
    log.error("volume.delete_failed", volume_id=work.volume_id, code=failure.code, error=failure.message)


@handles(DeleteVolume, failed=keep_deleting)
async def delete_volume(work: DeleteVolume, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        volume = await rows.lock(session, work.volume_id)
        if volume is None or volume.status != VolumeStatus.DELETING:
            return Done()
        moment = await rows.database_time(session)
    waited = moment - volume.updated_at
    try:
        if volume.asked_at is not None:
            return await _resolve(volume, moment - volume.asked_at, ctx)
        if volume.novita_id is None or await _delete_and_look(volume, volume.novita_id, ctx):
            async with ctx.write() as session:
                deleted = {"status": VolumeStatus.DELETED, "failure_code": None, "failure_message": None}
                await rows.change(session, volume.id, EventType.VOLUME_DELETED, deleted)
            return Done()
    except NovitaError as error:
        await _note(volume, error, ctx)
        return wait_for_provider(error, waited, longest=PAUSE_MAX)
    return Again(after=growing_pause(waited, longest=timedelta(seconds=10)))


async def _resolve(volume: Volume, unresolved_for: timedelta, ctx: JobContext) -> Outcome:
    """Find out what a create that was in flight when the delete was accepted has made: that must be deleted, too."""
    found = await find_marked(str(volume.marker), ctx)
    if found is None and (left := unresolved_timeout(ctx) - unresolved_for) > timedelta(0):
        return Again(after=min(left, timedelta(seconds=2)))
    async with ctx.write() as session:
        if found is None:
            await rows.change(session, volume.id, None, {"asked_at": None})
        else:
            await rows.link_created(session, volume, found.id, price_e5=found.price_e5)
    return Again(after=timedelta(0))


async def _delete_and_look(volume: Volume, novita_id: str, ctx: JobContext) -> bool:
    """Send the delete, then look; repeating it is harmless.

    After an accepted delete, a complete list without the volume is enough. If the provider says that it has no such
    volume before that, it has to be missing for GONE_GRACE: its answer may be wrong.
    """
    is_accepted = volume.delete_accepted_at is not None
    try:
        await ctx.novita.delete_network_storage(novita_id)
    except ProviderNotFound as error:
        if not error.is_certain_refusal:
            raise
    else:
        # Only if it is news: a write is a new `updated_at`, from which the pauses grow.
        if not is_accepted or volume.failure_code is not None:
            async with ctx.write() as session:
                accepted = {"delete_accepted_at": func.clock_timestamp(), "failure_code": None, "failure_message": None}
                await rows.change(session, volume.id, None, accepted)
        is_accepted = True
    if any(each.id == novita_id for each in await ctx.novita.all_network_storages()):
        if volume.missing_since is not None:  # the answer before was wrong: GONE_GRACE begins anew
            async with ctx.write() as session:
                await rows.change(session, volume.id, None, {"missing_since": None})
        return False
    async with ctx.write() as session:
        missing_since = volume.missing_since or await rows.database_time(session)
        if volume.missing_since is None:
            await rows.change(session, volume.id, None, {"missing_since": missing_since})
        return is_accepted or await rows.database_time(session) - missing_since >= ctx.settings.gone_grace


async def _note(volume: Volume, error: NovitaError, ctx: JobContext) -> None:
    """Callers see why it takes so long, such as a machine of another tool that has it."""
    if (error.code, error.message) != (volume.failure_code, volume.failure_message):
        async with ctx.write() as session:
            failure = {"failure_code": error.code, "failure_message": error.message}
            await rows.change(session, volume.id, EventType.VOLUME_CHANGED, failure)
