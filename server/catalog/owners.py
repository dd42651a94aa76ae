"""Which objects of the provider account a project may see: its own, and those that no project created."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

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


async def visible(
    database: Database, kind: ProviderObjectKind, items: Sequence[Item], *, project_id: UUID
) -> list[Item]:
    """Leaves out the objects of other projects."""
    rows = await _of_others(database, [kind], project_id)
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
) -> frozenset[tuple[ProviderObjectKind, str]]:
    """Those of the wanted (kind, provider id) that belong to another project."""
    named = {(kind, novita_id) for kind, novita_id in wanted if novita_id is not None}
    if not named:
        return frozenset()
    rows = await _of_others(database, [kind for kind, _ in named], project_id)
    found = {(ProviderObjectKind(row.kind), row.novita_id) for row in rows if row.novita_id is not None}
    return frozenset(named & found)


async def _of_others(
    database: Database, kinds: Sequence[ProviderObjectKind], project_id: UUID
) -> Sequence[ProviderObject]:
    async with database.read() as session:
        rows = await session.execute(
            select(ProviderObject).where(
                ProviderObject.kind.in_(kinds),
                ProviderObject.project_id != project_id,
                ProviderObject.deleted_at.is_(None),
            )
        )
        return rows.scalars().all()
