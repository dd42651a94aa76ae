"""Pages of instances and instances by id, read without the ORM: most requests read one of these.

Making ORM objects of 50 rows takes longer than PostgreSQL takes to find them, and a session's transaction takes three
round trips where a single statement has its own snapshot. A page reads only the columns that its selection shows.
"""

from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.database import Database
from server.db.tables import Instance, InstanceRow
from server.db.tables.rows import with_json
from server.enums import InstanceStatus
from server.instances.queries.instances import (
    FILTER_PARAMETERS,
    PAGE_PARAMETERS,
    PLACE_COLUMNS,
    InstanceFilter,
    InstanceOrder,
    filter_value,
    page_values,
    select_page,
    shape_of,
)

NO_FILTER = InstanceFilter()
ALL_COLUMNS = InstanceRow._fields
NOT_DELETED = f"status <> '{InstanceStatus.DELETED}'"  # written out, as in the index of names

_DIALECT = dialect()
_JSON = frozenset(name for name in ALL_COLUMNS if isinstance(Instance.__table__.columns[name].type, JSONB))


async def page(
    database: Database,
    *,
    project_id: UUID,
    wanted: InstanceFilter = NO_FILTER,
    first: int,
    after: tuple[Any, UUID] | None,
    order: InstanceOrder,
    descending: bool,
    columns: Collection[str] = ALL_COLUMNS,
) -> Sequence[InstanceRow]:
    """A page; from a replica, if there is one that has everything that was committed before this request.

    The rows have only these columns, the id, and those that the page is sorted by.
    """
    needed = {"id", *columns, *PLACE_COLUMNS[order]}
    names = tuple(name for name in ALL_COLUMNS if name in needed)
    statement = _statement(shape_of(wanted), order, descending, after is not None, first, names)
    values = statement.values(page_values(project_id, after), wanted)
    return statement.rows(await database.fetch_from_replica_if_fresh(statement.text, *values))


async def by_ids(
    database: Database, ids: Sequence[UUID], *, by: Caller, columns: Collection[str] = ALL_COLUMNS
) -> Mapping[UUID, InstanceRow]:
    """The rows have only these columns and the id."""
    text, model, json_places = select_by_ids(frozenset(columns))
    values: list[Any] = [by.project_id]
    if by.owner_id is not None:
        text, values = f"{text} AND owner_token_id = $3", [*values, by.owner_id]
    rows = _rows(model, json_places, await database.raw.fetch_by_keys(text, ids, *values))
    return {row.id: row for row in rows}


async def by_name(
    database: Database, name: str, *, by: Caller, columns: Collection[str] = ALL_COLUMNS
) -> InstanceRow | None:
    """The instance of that name that is not deleted, with only these columns and the id."""
    text, model, json_places = select_by_name(frozenset(columns))
    values: list[Any] = [name, by.project_id]
    if by.owner_id is not None:
        text, values = f"{text} AND owner_token_id = $3", [*values, by.owner_id]
    return next(iter(_rows(model, json_places, await database.raw.fetch(text, *values))), None)


async def read_in(session: AsyncSession, instance_id: UUID, *, by: Caller) -> InstanceRow | None:
    """As the session's transaction sees it, to go with what else is read there."""
    shown: list[Any] = [getattr(Instance, name) for name in ALL_COLUMNS]
    one = select(*shown).where(Instance.id == instance_id, Instance.project_id == by.project_id)
    if by.owner_id is not None:
        one = one.where(Instance.owner_token_id == by.owner_id)
    found = (await session.execute(one)).one_or_none()
    return None if found is None else InstanceRow._make(found)


@lru_cache(maxsize=200)
def select_by_ids(columns: frozenset[str]) -> tuple[str, Any, tuple[int, ...]]:
    """The SQL of `by_ids`, the class of its rows, and which of their values are JSON."""
    return _select(columns, "id = ANY($1::uuid[]) AND project_id = $2")


@lru_cache(maxsize=200)
def select_by_name(columns: frozenset[str]) -> tuple[str, Any, tuple[int, ...]]:
    """The same of `by_name`."""
    return _select(columns, f"name = $1 AND project_id = $2 AND {NOT_DELETED}")


def _select(columns: frozenset[str], condition: str) -> tuple[str, Any, tuple[int, ...]]:
    names = tuple(name for name in ALL_COLUMNS if name == "id" or name in columns)
    return f"SELECT {', '.join(names)} FROM instance WHERE {condition}", _model(names), _json_places(names)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A page's SQL. `parameters` are its values in order; `*_places` say which have names."""

    text: str
    model: Any
    json_places: tuple[int, ...]
    parameters: tuple[Any, ...]
    page_places: tuple[tuple[int, str], ...]
    filter_places: tuple[tuple[int, str], ...]

    def values(self, of_page: Mapping[str, Any], wanted: InstanceFilter) -> list[Any]:
        values = list(self.parameters)
        for place, name in self.page_places:
            values[place] = of_page[name]
        for place, name in self.filter_places:
            values[place] = _parameter(filter_value(wanted, name))
        return values

    def rows(self, records: Sequence[asyncpg.Record]) -> list[InstanceRow]:
        return _rows(self.model, self.json_places, records)


@lru_cache(maxsize=200)
def _statement(
    shape: InstanceFilter, order: InstanceOrder, descending: bool, is_later: bool, first: int, columns: tuple[str, ...]
) -> _Statement:
    """Compiling takes about 1 ms, so the last statements are kept: one for all filters of a shape."""
    page = select_page(shape, order, descending=descending, is_later=is_later, first=first, columns=columns)
    state = page.compile(dialect=_DIALECT).construct_expanded_state(dict.fromkeys(PAGE_PARAMETERS))
    names = list(enumerate(state.positiontup or ()))
    return _Statement(
        text=state.statement,
        model=_model(columns),
        json_places=_json_places(columns),
        parameters=tuple(_parameter(value) for value in state.positional_parameters),
        page_places=tuple(each for each in names if each[1] in PAGE_PARAMETERS),
        filter_places=tuple(each for each in names if each[1] in FILTER_PARAMETERS),
    )


def _model(columns: tuple[str, ...]) -> Any:
    make: Any = namedtuple
    return InstanceRow if columns == ALL_COLUMNS else make("PartOfInstanceRow", columns)


def _parameter(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, dict) else value  # asyncpg takes JSON as text


def _json_places(columns: Sequence[str]) -> tuple[int, ...]:
    return tuple(place for place, name in enumerate(columns) if name in _JSON)


def _rows(model: Any, json_places: tuple[int, ...], records: Sequence[asyncpg.Record]) -> list[Any]:
    if not json_places:
        return list(map(model._make, records))
    return [model._make(with_json(record, json_places)) for record in records]
