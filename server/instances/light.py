"""Instances read past the ORM, for the reads that come most: a page without a filter, and rows by their ids.

Making objects of fifty rows costs the ORM more time than finding them costs PostgreSQL, and its transaction is three
round trips where one statement has its own snapshot anyway. What comes back has the attributes of a row; what is JSON
is read when somebody asks for it.

Of a page PostgreSQL is only asked which rows it has, and in which version: most were read before. What is kept is a
version of a row, which never changes, so nobody is shown anything older than the statement saw.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import asyncpg
import orjson
from sqlalchemy import inspect
from sqlalchemy.dialects.postgresql import JSONB

from server.db.engine import Database
from server.db.raw import RawPool
from server.db.tables import Instance
from server.instances.reads import InstanceOrder

# Large, and full of secrets: whoever needs these asks for them by name.
LEFT_OUT = frozenset({"env", "webhook_url"})
MOST_KEPT = 1_000  # rows of a database

_COLUMNS = [each for each in inspect(Instance).column_attrs if each.key not in LEFT_OUT]
# Which version of a row this is: the transaction that wrote it. A server that was promoted may give the number of a
# transaction again that got lost with its predecessor, but not at the same microsecond.
_VERSION = "id, xmin, updated_at"
_SELECT_VERSIONS = f"SELECT {_VERSION} FROM instance"
_SELECT = f"SELECT {', '.join(each.key for each in _COLUMNS)}, xmin FROM instance"
_SORTED_BY = {
    InstanceOrder.CREATED_AT: ("created_at", "timestamptz"),
    InstanceOrder.NAME: ("name", "text"),
    InstanceOrder.STATUS: ("status", "text"),
    InstanceOrder.STATUS_SINCE: ("status_since", "timestamptz"),
}
BY_IDS = f"{_SELECT} WHERE id = ANY($1::uuid[]) AND project_id = $2"


class Row:
    """Reads as an `Instance` does. Not to be changed, and of no session.

    `shown` is for those who show it: what they made of this version of the row alone, to be found again.
    """

    __slots__ = ("_record", "_version", "shown")

    def __init__(self, record: asyncpg.Record) -> None:
        self._record = record
        self._version: tuple[int, datetime] = (record["xmin"], record["updated_at"])
        self.shown: dict[object, Any] = {}

    def is_version(self, record: asyncpg.Record) -> bool:
        """Whether it is the one that a record of `_VERSION` tells of."""
        xmin, updated_at = self._version
        return xmin == record[1] and updated_at == record[2]


class Kept:
    """The rows of a database that were last on a page, each in one version."""

    def __init__(self) -> None:
        self._rows: OrderedDict[UUID, Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, record: asyncpg.Record) -> Row | None:
        id = record[0]
        row = self._rows.get(id)
        if row is None or not row.is_version(record):
            return None
        self._rows.move_to_end(id)
        return row

    def keep(self, record: asyncpg.Record) -> Row:
        row = self._rows[record["id"]] = Row(record)
        self._rows.move_to_end(record["id"])
        if len(self._rows) > MOST_KEPT:
            self._rows.popitem(last=False)
        return row


_kept: WeakKeyDictionary[Database, Kept] = WeakKeyDictionary()


def _reader(place: int, *, is_json: bool) -> Callable[[Row], Any]:
    if is_json:
        return lambda row: orjson.loads(row._record[place])  # pyright: ignore[reportPrivateUsage] - it is the row's own
    return lambda row: row._record[place]  # pyright: ignore[reportPrivateUsage]


for _place, _column in enumerate(_COLUMNS):
    setattr(Row, _column.key, property(_reader(_place, is_json=isinstance(_column.columns[0].type, JSONB))))


def can_sort(order: InstanceOrder) -> bool:
    return order in _SORTED_BY


async def page(
    database: Database,
    *,
    project_id: UUID,
    first: int,
    after: tuple[Any, UUID] | None,
    order: InstanceOrder,
    descending: bool,
) -> Sequence[Instance]:
    """What `reads.page_of_instances` gives where everything that is not deleted is wanted."""
    pool = database.raw
    kept = _kept.setdefault(database, Kept())
    given = (project_id, first, *(() if after is None else after))
    versions = await pool.fetch(_page_of(_SELECT_VERSIONS, order, descending, after is not None), *given)
    rows = [kept.find(each) for each in versions]
    if None in rows:
        rows = await _completed(pool, kept, versions, rows, project_id)
    if rows is None:
        records = await pool.fetch(_page_of(_SELECT, order, descending, after is not None), *given)
        rows = [kept.keep(each) for each in records]
    return cast("Sequence[Instance]", rows)


async def _completed(
    pool: RawPool,
    kept: Kept,
    versions: Sequence[asyncpg.Record],
    rows: Sequence[Row | None],
    project_id: UUID,
) -> Sequence[Row | None] | None:
    """The rows with those that were not kept; None if one has changed since, for a page is of one moment."""
    missing = {each[0]: each for each, row in zip(versions, rows, strict=True) if row is None}
    records = await pool.fetch(BY_IDS, list(missing), project_id)
    read = {each["id"]: kept.keep(each) for each in records}
    if len(read) != len(missing) or not all(read[id].is_version(each) for id, each in missing.items()):
        return None
    return [row or read[each[0]] for each, row in zip(versions, rows, strict=True)]


async def by_ids(database: Database, ids: Sequence[UUID], *, project_id: UUID) -> Mapping[UUID, Instance]:
    """What `reads.get_instances` gives."""
    pool = database.raw
    records = await pool.fetch(BY_IDS, ids, project_id)
    return {record["id"]: cast("Instance", Row(record)) for record in records}


@cache
def _page_of(select: str, order: InstanceOrder, descending: bool, is_later: bool) -> str:
    column, type = _SORTED_BY[order]
    way, sign = ("DESC", "<") if descending else ("ASC", ">")
    behind = f" AND ({column}, id) {sign} ($3::{type}, $4::uuid)" if is_later else ""
    return (
        f"{select} WHERE project_id = $1 AND status <> 'DELETED'{behind}"
        f" ORDER BY {column} {way}, id {way} LIMIT $2::bigint"
    )
