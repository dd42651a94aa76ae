"""The one writer of volumes: each change is written with its event, under the row's lock."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import format_id
from server.db.tables import Volume
from server.enums import VolumeStatus
from server.events import outbox
from server.events.event import EventType

PREFIX = "vol"
NAME_INDEX = "volume_name_is_unique_among_the_living"


async def lock(session: AsyncSession, volume_id: UUID) -> Volume | None:
    """The row until the end of the transaction; a create of an instance that names it waits, too."""
    result = await session.execute(
        select(Volume).where(Volume.id == volume_id).with_for_update().execution_options(populate_existing=True)
    )
    return result.scalar_one_or_none()


async def database_time(session: AsyncSession) -> datetime:
    """The clock that decides how long an answer has been missing."""
    return (await session.execute(select(func.clock_timestamp()))).scalar_one()


async def insert(session: AsyncSession, volume: Volume, type: EventType, *, caused_by: UUID | None) -> None:
    session.add(volume)
    await session.flush()
    await _append(session, volume, type, caused_by)


async def change(
    session: AsyncSession,
    volume_id: UUID,
    type: EventType | None,
    values: Mapping[str, Any],
    *,
    caused_by: UUID | None = None,
) -> Volume:
    """Write values, with an event if callers shall see the change."""
    times = {"updated_at": func.clock_timestamp()}
    if values.get("status") == VolumeStatus.DELETED:
        times["deleted_at"] = func.clock_timestamp()
    result = await session.execute(
        update(Volume)
        .where(Volume.id == volume_id)
        .values(**values, **times)
        .returning(Volume)
        .execution_options(populate_existing=True)
    )
    volume = result.scalar_one()
    if type is not None:
        await _append(session, volume, type, caused_by)
    return volume


async def link_created(session: AsyncSession, volume: Volume, novita_id: str, *, price_e5: int | None) -> None:
    """The create is known to have succeeded. If it was deleted meanwhile, the delete goes on with this id."""
    found = {"novita_id": novita_id, "asked_at": None, "price_e5": price_e5, "missing_since": None}
    locked = await lock(session, volume.id)
    if locked is None or locked.asked_at is None:
        return
    if locked.status == VolumeStatus.CREATING:
        available = {"status": VolumeStatus.AVAILABLE, "failure_code": None, "failure_message": None}
        await change(session, volume.id, EventType.VOLUME_AVAILABLE, {**found, **available})
    else:
        await change(session, volume.id, None, found)


async def append_orphan(session: AsyncSession, volume: Volume, novita_id: str) -> None:
    """Record that a volume that was deleted exists at the provider."""
    await _append(session, volume, EventType.VOLUME_ORPHAN_FOUND, None, novitaId=novita_id)


async def _append(session: AsyncSession, volume: Volume, type: EventType, caused_by: UUID | None, **more: str) -> None:
    values: dict[str, str | int] = {
        "name": volume.name,
        "region": volume.region,
        "sizeGb": volume.size_gb,
        "status": volume.status,
        **more,
    }
    if volume.failure_code is not None:
        values |= {"code": volume.failure_code, "message": volume.failure_message or ""}
    await outbox.append_project_event(
        session,
        type,
        project_id=volume.project_id,
        values=values,
        objects={"volume": format_id(PREFIX, volume.id)},
        caused_by=caused_by,
    )
