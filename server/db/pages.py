"""Pages of a table's rows, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from server.db.database import Database
from server.db.tables.rows import Model, make_rows, select_rows, table_of


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions that must all hold, as SQL, and the values of its parameters. Without any, all rows match."""

    conditions: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()

    def given(self, condition: str, *values: Any) -> "Where":
        """One condition more; each `{}` in it stands for one of the values."""
        first = len(self.values) + 1
        places = [f"${first + place}" for place in range(len(values))]
        return Where((*self.conditions, condition.format(*places)), (*self.values, *values))

    @property
    def sql(self) -> str:
        return f"WHERE {' AND '.join(self.conditions)}" if self.conditions else ""


async def newest_first(
    database: Database, model: type[Model], where: Where, *, first: int, after: tuple[datetime, UUID] | None = None
) -> Sequence[Model]:
    if after is not None:
        where = where.given("(created_at, id) < ({}, {})", *after)
    statement = f"{select_rows(model)} {where.sql} ORDER BY created_at DESC, id DESC LIMIT {int(first)}"
    return make_rows(model, await database.fetch_from_replica_if_fresh(statement, *where.values))


async def count_rows(database: Database, model: type[Any], where: Where) -> int:
    statement = f"SELECT count(*) FROM {table_of(model)} {where.sql}"
    ((count,),) = await database.fetch_from_replica_if_fresh(statement, *where.values)
    return count
