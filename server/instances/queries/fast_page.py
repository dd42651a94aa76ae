"""Pages of instances and instances by id, read without the ORM: most requests read one of these.

Making ORM objects of 50 rows takes longer than PostgreSQL takes to find them, and a session's transaction takes three
round trips where a single statement has its own snapshot. A page's statement returns only which rows the page has and
the version of each. Most rows were read before; the others are read by id.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from sqlalchemy import literal_column
from sqlalchemy.dialects.postgresql import BYTEA, JSONB
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from server.db.database import Database
from server.db.pool import RawPool
from server.db.tables import Instance, InstanceRow
from server.instances.queries.instances import (
    PAGE_PARAMETERS,
    InstanceFilter,
    InstanceOrder,
    page_of_instances,
    page_values,
    select_page,
)

MAX_ROWS = 1_000  # that are kept
NO_FILTER = InstanceFilter()

COLUMNS = ", ".join(InstanceRow._fields)
# The transaction that wrote the row. A promoted server may reuse the number of a transaction that was lost with its
# predecessor, but not at the same microsecond. Bytes are the cheapest to read: all versions of a page are one value.
VERSION = "uuid_send(id) || xidsend(xmin) || timestamptz_send(updated_at)"
_ID_BYTES, _VERSION_BYTES = 16, 28
BY_IDS = f"SELECT {COLUMNS}, {VERSION} AS row_version FROM instance WHERE id = ANY($1::uuid[]) AND project_id = $2"

_DIALECT = dialect()
_JSON_PLACES = [
    place for place, name in enumerate(InstanceRow._fields) if isinstance(Instance.__table__.columns[name].type, JSONB)
]


class RowCache:
    """The rows that were read last, by version. A version of a row never changes, so a kept row is never outdated."""

    def __init__(self) -> None:
        self._rows: OrderedDict[bytes, InstanceRow] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, version: bytes) -> InstanceRow | None:
        row = self._rows.get(version)
        if row is not None:
            self._rows.move_to_end(version)
        return row

    def add(self, record: asyncpg.Record) -> InstanceRow:
        row = self._rows[record["row_version"]] = _row(record)
        if len(self._rows) > MAX_ROWS:
            self._rows.popitem(last=False)
        return row


async def page(
    database: Database,
    *,
    project_id: UUID,
    wanted: InstanceFilter = NO_FILTER,
    first: int,
    after: tuple[Any, UUID] | None,
    order: InstanceOrder,
    descending: bool,
) -> Sequence[InstanceRow]:
    """A page; from a replica, if there is one that has everything that was committed before this request."""
    if database.has_replica:
        async with database.read_from_replica_if_fresh() as session:
            return await page_of_instances(
                session,
                project_id=project_id,
                wanted=wanted,
                first=first,
                after=after,
                order=order,
                descending=descending,
            )
    pool, cache = database.raw, database.shared(RowCache)
    statement = _statement(wanted, order, descending, after is not None, first)
    values = statement.values(page_values(project_id, after))
    versions = await pool.fetchval(statement.versions, *values)
    rows = await _complete(pool, cache, versions or b"", project_id)
    if rows is None:
        rows = [cache.add(record) for record in await pool.fetch(statement.rows, *values)]
    return rows


async def by_ids(database: Database, ids: Sequence[UUID], *, project_id: UUID) -> Mapping[UUID, InstanceRow]:
    pool = database.raw
    rows = [_row(record) for record in await pool.fetch(BY_IDS, ids, project_id)]
    return {row.id: row for row in rows}


async def _complete(pool: RawPool, cache: RowCache, versions: bytes, project_id: UUID) -> list[InstanceRow] | None:
    """The rows of these versions; None if one has changed since, because a page must be of one moment."""
    keys = [versions[at : at + _VERSION_BYTES] for at in range(0, len(versions), _VERSION_BYTES)]
    rows = {key: cache.find(key) for key in keys}
    missing = [UUID(bytes=key[:_ID_BYTES]) for key, row in rows.items() if row is None]
    if missing:
        rows |= {record["row_version"]: cache.add(record) for record in await pool.fetch(BY_IDS, missing, project_id)}
    page = [row for key in keys if (row := rows[key]) is not None]
    return page if len(page) == len(keys) else None


@dataclass(frozen=True, slots=True)
class _Statement:
    """A page's SQL. `parameters` are its values in order; those of the page itself stand under their names."""

    rows: str
    versions: str
    parameters: tuple[Any, ...]
    places: tuple[tuple[int, str], ...]

    def values(self, of_page: Mapping[str, Any]) -> list[Any]:
        values = list(self.parameters)
        for place, name in self.places:
            values[place] = of_page[name]
        return values


@lru_cache(maxsize=100)
def _statement(
    wanted: InstanceFilter, order: InstanceOrder, descending: bool, is_later: bool, first: int
) -> _Statement:
    """Compiling takes about 1 ms, so the statements of the last filters are kept."""
    page = select_page(wanted, order, descending=descending, is_later=is_later, first=first)
    page = page.add_columns(literal_column(VERSION, BYTEA()).label("row_version"))
    state = page.compile(dialect=_DIALECT).construct_expanded_state(dict.fromkeys(PAGE_PARAMETERS))
    source, names = f"FROM ({state.statement}) AS page", state.positiontup or ()
    return _Statement(
        rows=f"SELECT * {source}",
        versions=f"SELECT string_agg(row_version, ''::bytea) {source}",  # in the order of the page
        parameters=tuple(_parameter(value) for value in state.positional_parameters),
        places=tuple((place, name) for place, name in enumerate(names) if name in PAGE_PARAMETERS),
    )


def _parameter(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, dict) else value  # asyncpg takes JSON as text


def _row(record: asyncpg.Record) -> InstanceRow:
    values = list(record)[:-1]  # without the version
    for place in _JSON_PLACES:
        if values[place] is not None:
            values[place] = orjson.loads(values[place])
    return InstanceRow._make(values)
