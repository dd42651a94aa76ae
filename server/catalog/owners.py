"""Which objects of the provider account a project may see: its own, and those that no project created.

One that was deleted is hidden for as long as its row is kept: a list may be older than the delete, in this process or
at the provider, and what was deleted must not seem to be an object of all projects.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

import orjson
from sqlalchemy import Row, and_, not_, or_, select

from server.db.database import Database
from server.db.tables import ProviderObject
from server.enums import ProviderObjectKind


class Listed(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Listed)

# The kinds of those of the given objects that another project created, or that were deleted.
OF_OTHERS = """(
    SELECT array_agg(wanted.kind)
    FROM jsonb_to_recordset({objects}) AS wanted (kind text, novita_id text)
    JOIN provider_object AS object USING (kind, novita_id)
    WHERE object.project_id <> {project} OR object.deleted_at IS NOT NULL)"""


async def visible(
    database: Database, kind: ProviderObjectKind, items: Sequence[Item], *, project_id: UUID
) -> list[Item]:
    """Leaves out the objects of other projects, and deleted ones."""
    rows = await _hidden(database, kind, [item.id for item in items], project_id)
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
    """The kinds of those of the wanted (kind, provider id) that belong to another project, or were deleted."""
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


async def _hidden(
    database: Database, kind: ProviderObjectKind, ids: Sequence[str], project_id: UUID
) -> Sequence[Row[str | None, str, list[str]]]:
    """The provider's id, the name, and what had this name before, of each object that is not shown."""
    is_deleted = ProviderObject.deleted_at.is_not(None)
    is_of_others = ProviderObject.project_id != project_id
    is_unconfirmed = and_(ProviderObject.novita_id.is_(None), not_(is_deleted))
    async with database.read() as session:
        rows = await session.execute(
            select(ProviderObject.novita_id, ProviderObject.name, ProviderObject.known_before).where(
                ProviderObject.kind == kind,
                or_(
                    and_(ProviderObject.novita_id.in_(ids), or_(is_of_others, is_deleted)),
                    and_(is_unconfirmed, is_of_others),
                ),
            )
        )
        return rows.all()
