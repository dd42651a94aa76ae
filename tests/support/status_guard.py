"""Fails a test in which `status` or `version` of an instance is written anywhere but in transitions.py.

Every way to write is watched for the whole test session: attributes of the ORM class, statements of SQLAlchemy and raw
statements of asyncpg. A write belongs to the innermost frame of the call stack that is in the product or in the tests;
writes of the tests themselves (set-up, seeds) are exempt. A batched INSERT runs outside of transitions.py, so its rows
must be ones that `transitions.new_row` built.
"""

import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import asyncpg
import greenlet
import orjson
import pytest
from sqlalchemy import Engine, event

from server.db.tables import Instance
from server.instances import transitions

ROOT = Path(__file__).parents[2]
WRITER = str(ROOT / "server" / "instances" / "transitions.py")
PRODUCT = tuple(f"{ROOT / name}/" for name in ("server", "schema"))
OUTSIDE = tuple(f"{ROOT / name}/" for name in ("tests", "bench", "migrations"))
PASSED_THROUGH = (f"{ROOT / 'server' / 'db'}/", __file__)  # runs the statements of its callers
METHODS = ("execute", "executemany", "fetch", "fetchrow", "fetchval")

INSERT = re.compile(r"\b(?:INSERT|MERGE)\s+INTO\s+instance\b", re.IGNORECASE)
UPDATE = re.compile(r"\bUPDATE\s+(?:ONLY\s+)?instance\b(?:\s+(?:AS\s+)?\w+)?\s+SET\b", re.IGNORECASE)
COLUMN = re.compile(r"\b(?:status|version)\s*=", re.IGNORECASE)
COLUMNS = re.compile(r"\s*\([^)]*\b(?:status|version)\b", re.IGNORECASE)
END_OF_SET = re.compile(r"\b(?:WHERE|FROM|RETURNING)\b", re.IGNORECASE)
BUILT_ROWS = re.compile(r"jsonb?_populate_recordset\(NULL::instance, \$(\d+)::jsonb?\)")


class StatusGuard:
    """The writes that broke the rule since the last `take`."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._built: set[str] = set()

    def take(self) -> list[str]:
        found, self._found = self._found, []
        return found

    @contextmanager
    def installed(self) -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in METHODS:
                patch.setattr(asyncpg.Connection, name, self._watched(getattr(asyncpg.Connection, name)))
            patch.setattr(transitions, "new_row", self._remembered(transitions.new_row))
            hooks: list[tuple[Any, str, Callable[..., None]]] = [
                (Engine, "before_cursor_execute", self._on_statement),
                (Instance.status, "set", self._on_assignment),
                (Instance.version, "set", self._on_assignment),
            ]
            for target, name, hook in hooks:
                event.listen(target, name, hook)
            try:
                yield
            finally:
                for target, name, hook in hooks:
                    event.remove(target, name, hook)

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(connection: Any, query: str, *args: Any, **options: Any) -> Any:
            if writes_status(query) and not self._is_built(query, args):
                self._check(query)
            return method(connection, query, *args, **options)

        return run

    def _remembered(self, new_row: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def build(fields: Any) -> dict[str, Any]:
            row = new_row(fields)
            self._built.add(_key(row))
            return row

        return build

    def _is_built(self, query: str, args: tuple[Any, ...]) -> bool:
        numbers = [int(number) for number in BUILT_ROWS.findall(query)]
        if not numbers or len(INSERT.findall(query)) != len(numbers) or UPDATE.search(query):
            return False
        return all(_key(row) in self._built for number in numbers for row in orjson.loads(args[number - 1]))

    def _on_statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if writes_status(statement):
            self._check(statement)

    def _on_assignment(self, _instance: Instance, value: Any, _old: Any, _initiator: Any) -> None:
        self._check(f"assignment of {value!r}")

    def _check(self, what: str) -> None:
        place = _place()
        if place is not None and place[0] != WRITER:
            self._found.append(f"{place[0]}:{place[1]}: {' '.join(what.split())[:120]}")


@cache
def writes_status(statement: str) -> bool:
    """Whether a statement inserts instances, or updates their status or version."""
    if "instance" not in statement:
        return False
    if INSERT.search(statement):
        return True
    return any(_sets_status(statement[match.end() :]) for match in UPDATE.finditer(statement))


def _sets_status(clause: str) -> bool:
    """By the text after SET: `column = ...` outside of brackets, or `(columns) = ...`."""
    if COLUMNS.match(clause):
        return True
    depth = 0
    for part in re.split(r"([()])", clause):
        if part in ("(", ")"):
            depth += 1 if part == "(" else -1
            if depth < 0:  # the end of a common table expression
                return False
        elif depth == 0:
            assignments, *rest = END_OF_SET.split(part, maxsplit=1)
            if COLUMN.search(assignments):
                return True
            if rest:
                return False
    return False


def _key(row: dict[str, Any]) -> str:
    return f"{row['id']} {row['status']} {row['version']}"


def _place() -> tuple[str, int] | None:
    """File and line of the innermost product frame; None if a frame of the tests is further in, or there is none."""
    for frame in _frames():
        file = frame.f_code.co_filename
        if file.startswith(PASSED_THROUGH):
            continue
        if file.startswith(OUTSIDE):
            return None
        if file.startswith(PRODUCT):
            return file, frame.f_lineno
    return None


def _frames() -> Iterator[FrameType]:
    """The call stack from the inside out, across the greenlets in which SQLAlchemy runs statements."""
    frame: FrameType | None = sys._getframe(1)
    current: greenlet.greenlet | None = greenlet.getcurrent()
    while current is not None:
        while frame is not None:
            yield frame
            frame = frame.f_back
        current = current.parent
        frame = None if current is None else current.gr_frame
