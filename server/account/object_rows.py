"""The one writer of what becomes of the account's objects: each change is written with its event."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import ColumnElement, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.database import Database
from server.db.tables import IdempotencyKey, ProviderObject
from server.enums import ProviderObjectKind
from server.events import outbox
from server.events.event import EventType
from server.queue.enqueue import enqueue
from server.queue.kinds import WatchPrewarms

# The field and the prefix of the id, as the API shows them.
SHOWN_AS = {
    ProviderObjectKind.REGISTRY_AUTH: ("registryAuth", "auth"),
    ProviderObjectKind.TEMPLATE: ("template", "tpl"),
    ProviderObjectKind.NETWORK: ("network", "net"),
    ProviderObjectKind.PREWARM: ("prewarm", "pre"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """An object as the provider shows it: a digest of what may change, and values for its event."""

    id: str
    name: str
    digest: str
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    is_over: bool = False  # what it was created for has ended, which is news also at the first look

    @classmethod
    def of(cls, id: str, name: str, *parts: Any, is_over: bool = False, **values: str) -> "Seen":
        """`parts` are compared. They must hold no secret, except under a key: a digest of one could be guessed from."""
        digest = sha256(orjson.dumps((name, *parts))).hexdigest()
        return cls(id, name, digest, values, is_over)


async def record_created(database: Database, row: ProviderObject, novita_id: str) -> None:
    """Of several that find its id, one writes it. The end of a prewarm is looked for from then on."""
    async with database.write() as session:
        written = await session.execute(
            update(ProviderObject)
            .where(ProviderObject.id == row.id, ProviderObject.novita_id.is_(None))
            .values(novita_id=novita_id)
            .returning(ProviderObject.id)
        )
        if written.first() is not None:
            await _append(session, row, "created", novita_id=novita_id, caused_by=row.created_by)
            if row.kind == ProviderObjectKind.PREWARM:
                await watch_prewarms(session)


async def watch_prewarms(session: AsyncSession) -> None:
    """Let the one job run that looks for their ends. One that is just ending misses it: reconcile asks again."""
    await enqueue(session, WatchPrewarms(), unique_key="prewarms")


async def record_changed(database: Database, kind: ProviderObjectKind, seen: Seen, *, by: Caller) -> None:
    """A caller's change was carried out. An object that was created elsewhere has no row, and an event all the same."""
    async with database.write() as session:
        row = await session.scalar(
            update(ProviderObject)
            .where(*_living(kind, seen.id))
            .values(seen=seen.digest, name=seen.name)
            .returning(ProviderObject)
        )
        row = row or _without_row(kind, seen.id, seen.name, by)
        await _append(session, row, "changed", caused_by=by.token_id, values=seen.values)


async def record_deleted(
    database: Database, kind: ProviderObjectKind, novita_id: str, *, by: Caller, was_there: bool
) -> None:
    """It is gone at the provider. Of two callers that deleted it, one writes the event."""
    async with database.write() as session:
        row = await session.scalar(
            update(ProviderObject)
            .where(*_living(kind, novita_id))
            .values(deleted_at=func.clock_timestamp(), missing_since=None)
            .returning(ProviderObject)
        )
        is_known = row is not None or await session.scalar(select(exists().where(*_row_of(kind, novita_id))))
        if row is None and was_there and not is_known:
            row = _without_row(kind, novita_id, "", by)
        if row is not None:
            await _append(session, row, "deleted", caused_by=by.token_id)


async def record_found(database: Database, row: ProviderObject, seen: Seen, *, is_news: bool, reason: str = "") -> bool:
    """What reconcile saw; False if the row has changed since it was read, which is newer than what was seen."""
    async with database.write() as session:
        written = await session.scalar(
            update(ProviderObject)
            .where(
                ProviderObject.id == row.id,
                ProviderObject.seen.is_not_distinct_from(row.seen),
                ProviderObject.deleted_at.is_not_distinct_from(row.deleted_at),
            )
            .values(seen=seen.digest, name=seen.name, missing_since=None, deleted_at=None)
            .returning(ProviderObject)
        )
        if written is not None and is_news:
            values = {**seen.values, **({"reason": reason} if reason else {})}
            await _append(session, written, "changed", values=values)
        return written is not None


async def record_missing(database: Database, row: ProviderObject, *, gone_grace: timedelta, reason: str) -> bool:
    """The provider does not list it: remember since when, or write that it was deleted outside of Pilotlight.

    `missing_since` stays then: if it is seen again, it is its project's again.
    """
    is_living = (ProviderObject.id == row.id, ProviderObject.deleted_at.is_(None))
    async with database.write() as session:
        gone = await session.scalar(
            update(ProviderObject)
            .where(*is_living, ProviderObject.missing_since <= func.clock_timestamp() - gone_grace)
            .values(deleted_at=func.clock_timestamp())
            .returning(ProviderObject)
        )
        if gone is not None:
            await _append(session, gone, "deleted", values={"reason": reason})
            return True
        await session.execute(
            update(ProviderObject)
            .where(*is_living, ProviderObject.missing_since.is_(None))
            .values(missing_since=func.clock_timestamp())
        )
        return False


async def forget(database: Database, row: ProviderObject) -> None:
    """Nothing was created, so the same key may be used again."""
    async with database.write() as session:
        await session.execute(delete(IdempotencyKey).where(IdempotencyKey.object_id == row.id))
        await session.execute(delete(ProviderObject).where(ProviderObject.id == row.id))


def _living(kind: ProviderObjectKind, novita_id: str) -> tuple[ColumnElement[bool], ...]:
    return (*_row_of(kind, novita_id), ProviderObject.deleted_at.is_(None))


def _row_of(kind: ProviderObjectKind, novita_id: str) -> tuple[ColumnElement[bool], ...]:
    return (ProviderObject.kind == kind, ProviderObject.novita_id == novita_id)


def _without_row(kind: ProviderObjectKind, novita_id: str, name: str, by: Caller) -> ProviderObject:
    """Stands for an object that was created elsewhere; it is not written."""
    return ProviderObject(kind=kind, novita_id=novita_id, name=name, project_id=by.project_id)


async def _append(
    session: AsyncSession,
    row: ProviderObject,
    what: str,
    *,
    novita_id: str | None = None,
    caused_by: UUID | None = None,
    values: Mapping[str, str] | None = None,
) -> None:
    field, prefix = SHOWN_AS[ProviderObjectKind(row.kind)]
    shown_id = f"{prefix}_{novita_id or row.novita_id}"
    await outbox.append_project_event(
        session,
        EventType(f"{row.kind.lower()}.{what}"),
        project_id=row.project_id,
        values={"id": shown_id, **({"name": row.name} if row.name else {}), **(values or {})},
        objects={field: shown_id},
        caused_by=caused_by,
    )
