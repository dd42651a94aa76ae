"""Instances read past the ORM, for the reads that come most: a page without a filter, and rows by their ids.

Making objects of fifty rows costs the ORM more time than finding them costs PostgreSQL, and its transaction is three
round trips where one statement has its own snapshot anyway. What comes back has the attributes of a row; what is JSON
is read when somebody asks for it.

Of a page PostgreSQL is only asked which rows it has, and in which version: most were read before, and so was the whole
page. What is kept is a version of a row, which never changes, so nobody is shown anything older than the statement saw.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
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
MOST_PAGES = 50

_COLUMNS = [each for each in inspect(Instance).column_attrs if each.key not in LEFT_OUT]
# Which version of a row this is: the transaction that wrote it. A server that was promoted may give the number of a
# transaction again that got lost with its predecessor, but not at the same microsecond. As bytes, which cost the least:
# all versions of a page are one value.
_VERSION = "uuid_send(id) || xidsend(xmin) || timestamptz_send(updated_at)"
_ID_BYTES, _VERSION_BYTES = 16, 28
_SELECT_VERSION = f"SELECT {_VERSION} AS version FROM instance"
_SELECT = f"SELECT {', '.join(each.key for each in _COLUMNS)}, {_VERSION} AS version FROM instance"
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

    __slots__ = ("_record", "shown")

    def __init__(self, record: asyncpg.Record) -> None:
        self._record = record
        self.shown: dict[object, Any] = {}


class Page(list[Row]):
    """Rows that were on a page together, with a place for what was `shown` of all of them. Not to be changed."""

    __slots__ = ("shown",)

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__(rows)
        self.shown: dict[object, Any] = {}


class Kept:
    """What was last asked for of a database: rows by their version, and pages by the versions of their rows."""

    def __init__(self) -> None:
        self._rows: OrderedDict[bytes, Row] = OrderedDict()
        self._pages: OrderedDict[bytes, Page] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, version: bytes) -> Row | None:
        row = self._rows.get(version)
        if row is not None:
            self._rows.move_to_end(version)
        return row

    def keep(self, record: asyncpg.Record) -> Row:
        version = record["version"]
        row = self.find(version)
        if row is None:
            row = self._rows[version] = Row(record)
            if len(self._rows) > MOST_KEPT:
                self._rows.popitem(last=False)
        return row

    def find_page(self, versions: bytes) -> Page | None:
        page = self._pages.get(versions)
        if page is not None:
            self._pages.move_to_end(versions)
        return page

    def keep_page(self, versions: bytes, rows: Sequence[Row]) -> Page:
        page = self._pages[versions] = Page(rows)
        if len(self._pages) > MOST_PAGES:
            self._pages.popitem(last=False)
        return page


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
    wanted = (order, descending, after is not None, first)
    given = (project_id, *(() if after is None else after))
    versions: bytes = await pool.fetchval(_versions_of(*wanted), *given) or b""
    page = kept.find_page(versions)
    if page is None:
        rows = await _completed(pool, kept, versions, project_id)
        if rows is None:
            records = await pool.fetch(_page_of(_SELECT, *wanted), *given)
            versions = b"".join(each["version"] for each in records)
            rows = [kept.keep(each) for each in records]
        page = kept.keep_page(versions, rows)
    return cast("Sequence[Instance]", page)


async def _completed(pool: RawPool, kept: Kept, versions: bytes, project_id: UUID) -> Sequence[Row] | None:
    """The rows of these versions; None if one has changed since, for a page is of one moment."""
    wanted = [versions[at : at + _VERSION_BYTES] for at in range(0, len(versions), _VERSION_BYTES)]
    found = {each: kept.find(each) for each in wanted}
    missing = [UUID(bytes=each[:_ID_BYTES]) for each, row in found.items() if row is None]
    if missing:
        found |= {each["version"]: kept.keep(each) for each in await pool.fetch(BY_IDS, missing, project_id)}
    rows = [found[each] for each in wanted]
    return None if None in rows else cast("Sequence[Row]", rows)


async def by_ids(database: Database, ids: Sequence[UUID], *, project_id: UUID) -> Mapping[UUID, Instance]:
    """What `reads.get_instances` gives."""
    pool = database.raw
    records = await pool.fetch(BY_IDS, ids, project_id)
    return {record["id"]: cast("Instance", Row(record)) for record in records}


@cache
def _versions_of(order: InstanceOrder, descending: bool, is_later: bool, first: int) -> str:
    page = _page_of(_SELECT_VERSION, order, descending, is_later, first)
    return f"SELECT string_agg(version, ''::bytea) FROM ({page}) AS page"  # which keeps their order


@cache
def _page_of(select: str, order: InstanceOrder, descending: bool, is_later: bool, first: int) -> str:
    """The limit is written out: of a parameter the planner knows nothing, and would plan anew for every page."""
    column, type = _SORTED_BY[order]
    way, sign = ("DESC", "<") if descending else ("ASC", ">")
    behind = f" AND ({column}, id) {sign} ($2::{type}, $3::uuid)" if is_later else ""
    return (
        f"{select} WHERE project_id = $1 AND status <> 'DELETED'{behind}"
        f" ORDER BY {column} {way}, id {way} LIMIT {int(first)}"
    )
