"""Compares all volumes with the provider's list and corrects the rows."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy import func, or_, select

from server.account.volumes import enqueue_create, enqueue_delete
from server.db.database import Database
from server.db.tables import Volume
from server.enums import VolumeStatus
from server.errors import ProviderNotFound
from server.events.event import EventType
from server.instances.markers import marker_of
from server.instances.provider.absence import GONE_AT_PROVIDER, is_mass
from server.novita.client import CallPriority, NovitaClient
from server.novita.models import NetworkStorage
from server.volumes import rows

log = structlog.get_logger(__name__)

GONE_MESSAGE = "The volume no longer exists at the provider."


async def reconcile_volumes(database: Database, novita: NovitaClient, *, gone_grace: timedelta) -> int:
    """Returns how many rows were compared. Without volumes, the provider is not called. Raises NovitaError."""
    async with database.read() as session:
        if await session.scalar(select(Volume.id).limit(1)) is None:
            return 0
    await _restart_jobs(database)
    listed = await novita.all_network_storages(priority=CallPriority.POLL)
    by_id = {each.id: each for each in listed}
    # Read after the list: what was linked since is newer than the list, and is left alone.
    volumes = await _compared(database, [marker for each in listed if (marker := marker_of(each.name))])
    present = [each for each in volumes if each.status in (VolumeStatus.AVAILABLE, VolumeStatus.FAILED)]
    missing = [each for each in present if each.status == VolumeStatus.AVAILABLE and each.novita_id not in by_id]
    is_believed = not is_mass(len(missing), len(present))
    if not is_believed:
        log.error("volumes.mass_disappearance", missing=len(missing), rows=len(present))
    for volume in present:
        listed_as = by_id.get(volume.novita_id or "")
        if is_believed or listed_as is not None:  # what is there is there, whatever the list lacks
            await _apply(database, volume.id, listed_as, gone_grace=gone_grace)
    for volume in volumes if is_believed else ():
        if volume.status == VolumeStatus.DELETED:
            await _remove_orphans(database, novita, volume, listed)
    return len(volumes)


async def _compared(database: Database, markers: Sequence[str]) -> Sequence[Volume]:
    """Living rows, and deleted ones whose marker the provider lists."""
    async with database.read() as session:
        found = await session.execute(
            select(Volume).where(or_(Volume.status != VolumeStatus.DELETED, Volume.marker.in_(markers)))
        )
        return found.scalars().all()


async def _restart_jobs(database: Database) -> None:
    """For rows whose job failed by a fault of ours; a job that exists keeps its key, and no other is added."""
    async with database.write() as session:
        unfinished = await session.execute(
            select(Volume).where(
                Volume.status.in_((VolumeStatus.CREATING, VolumeStatus.DELETING)),
                Volume.updated_at < func.clock_timestamp() - timedelta(minutes=1),
            )
        )
        for volume in unfinished.scalars():
            if volume.status == VolumeStatus.DELETING:
                await enqueue_delete(session, volume)
            else:
                await enqueue_create(session, volume, None)


async def _apply(database: Database, volume_id: UUID, listed: NetworkStorage | None, *, gone_grace: timedelta) -> None:
    async with database.write() as session:
        volume = await rows.lock(session, volume_id)
        if volume is None or volume.novita_id is None or volume.status not in ("AVAILABLE", "FAILED"):
            return
        if listed is None:
            if volume.status == VolumeStatus.FAILED:
                return
            now = await rows.database_time(session)
            if volume.missing_since is None:
                await rows.change(session, volume_id, None, {"missing_since": now})
            elif now - volume.missing_since >= gone_grace:
                failed = {
                    "status": VolumeStatus.FAILED,
                    "failure_code": GONE_AT_PROVIDER,
                    "failure_message": GONE_MESSAGE,
                }
                await rows.change(session, volume_id, EventType.VOLUME_FAILED, failed)
            return
        seen = {
            "size_gb": volume.size_gb if listed.size_gb is None else listed.size_gb,
            "price_e5": volume.price_e5 if listed.price_e5 is None else listed.price_e5,
        }
        back = {"status": VolumeStatus.AVAILABLE, "missing_since": None, "failure_code": None, "failure_message": None}
        is_back = volume.status == VolumeStatus.FAILED
        if any(getattr(volume, name) != value for name, value in (seen | back).items()):
            # A price that is read for the first time is no news.
            is_news = seen["size_gb"] != volume.size_gb or volume.price_e5 not in (None, seen["price_e5"])
            type = EventType.VOLUME_AVAILABLE if is_back else EventType.VOLUME_CHANGED if is_news else None
            await rows.change(session, volume_id, type, {**seen, **back})


async def _remove_orphans(
    database: Database, novita: NovitaClient, volume: Volume, listed: Sequence[NetworkStorage]
) -> None:
    """Delete what exists although its row is deleted. Event first: if killed in between, the next run repeats both."""
    for each in listed:
        if marker_of(each.name) != volume.marker:
            continue
        log.warning("volumes.orphan", volume_id=volume.id, novita_id=each.id)
        async with database.write() as session:
            await rows.append_orphan(session, volume, each.id)
        try:
            await novita.delete_network_storage(each.id)
        except ProviderNotFound:
            continue
