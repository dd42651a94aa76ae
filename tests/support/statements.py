"""Records the SQL statements of the served application during a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from server.db.pool import RawPool
from server.db.tables import Base
from tests.support.api_server import Server

Statement = tuple[str, tuple[Any, ...]]


@contextmanager
def listening(server: Server) -> Iterator[list[Statement]]:
    """Statements with their values, by a session or past it; but not that a token was used."""
    statements: list[Statement] = []
    engine = server.runtime.database.engine.sync_engine

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if not statement.startswith("UPDATE token"):
            statements.append((statement, tuple(values)))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fetch", "execute"):
            patch.setattr(RawPool, name, _noted(getattr(RawPool, name), statements))
        event.listen(engine, "before_cursor_execute", note)
        try:
            yield statements
        finally:
            event.remove(engine, "before_cursor_execute", note)


@contextmanager
def orm_objects() -> Iterator[list[str]]:
    """The tables of the ORM objects that sessions make out of rows."""
    found: list[str] = []

    def note(made: Base, _context: Any) -> None:
        found.append(made.__tablename__)

    event.listen(Base, "load", note, propagate=True)
    try:
        yield found
    finally:
        event.remove(Base, "load", note)


def _noted(method: Any, statements: list[Statement]) -> Any:
    async def noted(pool: Any, statement: str, *values: Any, **options: Any) -> Any:
        statements.append((statement, values))
        return await method(pool, statement, *values, **options)

    return noted
