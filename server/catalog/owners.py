"""Which objects of the provider account a project may see: its own, and those that no project created."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

import orjson
from sqlalchemy import select

from server.db.database import Database
from server.db.tables import ProviderObject
from server.enums import ProviderObjectKind


class Listed(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Listed)

# The kinds of those of the given objects that another project created.
OF_OTHERS = """(
    SELECT array_agg(wanted.kind)
    FROM jsonb_to_recordset({objects}) AS wanted (kind text, novita_id text)
    JOIN provider_object AS object USING (kind, novita_id)
    WHERE object.project_id <> {project} AND object.deleted_at IS NULL)"""


async def visible(
    database: Database, kind: ProviderObjectKind, items: Sequence[Item], *, project_id: UUID
) -> list[Item]:
    """Leaves out the objects of other projects."""
    rows = await _of_others(database, kind, project_id)
    owned = {row.novita_id for row in rows}
    # Another project is creating an object of this name, and its id is not recorded yet.
    unconfirmed = {row.name: frozenset(row.known_before) for row in rows if row.novita_id is None}
    return [
        item
        for item in items
        if item.id not in owned and (item.name not in unconfirmed or item.id in unconfirmed[item.name])
    ]


async def owned_by_others(
    database: Database, wanted: Iterable[tuple[ProviderObjectKind, str | None]], *, project_id: UUID
) -> frozenset[ProviderObjectKind]:
    """Those of the wanted (kind, provider id) that belong to another project."""
    objects = wanted_objects(wanted)
    if objects is None:
        return frozenset()
    return kinds_of(
        await database.raw.fetchval(
            f"SELECT {OF_OTHERS.format(objects='$1::jsonb', project='$2')}", objects, project_id
        )
    )


def wanted_objects(wanted: Iterable[tuple[ProviderObjectKind, str | None]]) -> str | None:
    """As a parameter of OF_OTHERS."""
    named = [{"kind": kind, "novita_id": novita_id} for kind, novita_id in wanted if novita_id is not None]
    return orjson.dumps(named).decode() if named else None


def kinds_of(found: Sequence[str] | None) -> frozenset[ProviderObjectKind]:
    """From a result of OF_OTHERS."""
    return frozenset(ProviderObjectKind(kind) for kind in found or ())


async def _of_others(database: Database, kind: ProviderObjectKind, project_id: UUID) -> Sequence[ProviderObject]:
    async with database.read() as session:
        rows = await session.execute(
            select(ProviderObject).where(
                ProviderObject.kind == kind,
                ProviderObject.project_id != project_id,
                ProviderObject.deleted_at.is_(None),
            )
        )
        return rows.scalars().all()
