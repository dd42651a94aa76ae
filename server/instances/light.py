"""Instances read past the ORM, for the reads that come most: a page without a filter, and rows by their ids.

Making objects of fifty rows costs the ORM more time than finding them costs PostgreSQL, and its transaction is three
round trips where one statement has its own snapshot anyway. What comes back has the attributes of a row; what is JSON
is read when somebody asks for it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast
from uuid import UUID

import asyncpg
import orjson
from sqlalchemy import inspect
from sqlalchemy.dialects.postgresql import JSONB

from server.db.engine import Database
from server.db.tables import Instance
from server.instances.reads import InstanceOrder

# Large, and full of secrets: whoever needs these asks for them by name.
LEFT_OUT = frozenset({"env", "webhook_url"})

_COLUMNS = [each for each in inspect(Instance).column_attrs if each.key not in LEFT_OUT]
_SELECT = f"SELECT {', '.join(each.key for each in _COLUMNS)} FROM instance"
_SORTED_BY = {
    InstanceOrder.CREATED_AT: ("created_at", "timestamptz"),
    InstanceOrder.NAME: ("name", "text"),
    InstanceOrder.STATUS: ("status", "text"),
    InstanceOrder.STATUS_SINCE: ("status_since", "timestamptz"),
}
BY_IDS = f"{_SELECT} WHERE id = ANY($1::uuid[]) AND project_id = $2"


class Row:
    """Reads as an `Instance` does. Not to be changed, and of no session."""

    __slots__ = ("_record",)

    def __init__(self, record: asyncpg.Record) -> None:
        self._record = record


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
    pool = await database.pool()
    place = () if after is None else after
    records = await pool.fetch(_page_of(order, descending, after is not None), project_id, first, *place)
    return cast("Sequence[Instance]", [Row(record) for record in records])


async def by_ids(database: Database, ids: Sequence[UUID], *, project_id: UUID) -> Mapping[UUID, Instance]:
    """What `reads.get_instances` gives."""
    pool = await database.pool()
    records = await pool.fetch(BY_IDS, ids, project_id)
    return {record["id"]: cast("Instance", Row(record)) for record in records}


@cache
def _page_of(order: InstanceOrder, descending: bool, is_later: bool) -> str:
    column, type = _SORTED_BY[order]
    way, sign = ("DESC", "<") if descending else ("ASC", ">")
    behind = f" AND ({column}, id) {sign} ($3::{type}, $4::uuid)" if is_later else ""
    return (
        f"{_SELECT} WHERE project_id = $1 AND status <> 'DELETED'{behind}"
        f" ORDER BY {column} {way}, id {way} LIMIT $2::bigint"
    )
