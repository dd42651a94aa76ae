"""One statement writes what a session would have written, row by row."""

from typing import Any

import asyncpg
import orjson
import pytest

from server.clock import now
from server.db.tables import Instance
from server.instances.acceptance import accept
from server.instances.choice import Defaults
from server.instances.create import _prepared, _write, asked_of
from server.instances.drafts import CreateDraft, Port
from tests.world import RTX, World

TABLES = ("instance", "operation", "outbox", "job")
# Another one in every row, or drawn by the database.
OWN = {"id", "instance_id", "operation_id", "seq", "run_at", "due_at"}


async def test_the_rows_are_the_same_as_those_of_a_session(world: World):
    one = await _instance(world, "same")
    async with world.database.write() as session:
        await _write(session, one, world.caller.token_id, by=world.caller)
    by_session = await _rows(world)
    await world.execute("DELETE FROM job")
    await world.execute("DELETE FROM operation")
    await world.execute("DELETE FROM instance")
    await world.execute("DELETE FROM outbox")

    await accept(world.database, await _instance(world, "same"), asked_of(_draft("same"), world.caller))

    assert await _rows(world) == by_session
    assert [row["type"] for row in by_session["outbox"]] == ["instance.created", "operation.started"]


async def test_what_the_tables_forbid_leaves_nothing_behind(world: World):
    asked = asked_of(_draft("taken"), world.caller)
    await accept(world.database, await _instance(world, "taken"), asked)
    before = await world.counts()

    with pytest.raises(asyncpg.UniqueViolationError):
        await accept(world.database, await _instance(world, "taken"), asked)

    assert await world.counts() == before


def _draft(name: str) -> CreateDraft:
    return CreateDraft(
        name=name,
        product_name=RTX,
        image="nginx",
        env={"A": "ü", "B": "1"},
        ports=(Port(80, "http"),),
        labels={"team": "vision"},
        command="run 'it'",
    )


async def _instance(world: World, name: str) -> Instance:
    defaults = Defaults(world.settings.default_regions, world.settings.estimated_ready_time)
    instance = await _prepared(world.catalog, _draft(name), by=world.caller, defaults=defaults)
    instance.estimated_ready_at = now()
    return instance


async def _rows(world: World) -> dict[str, list[dict[str, Any]]]:
    """Everything but what differs from row to row: ids and moments, also inside of JSON."""
    found = {}
    for table in TABLES:
        rows = await world.rows(f"SELECT * FROM {table} ORDER BY 1")
        found[table] = [_plain(dict(row)) for row in rows]
    return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in row.items():
        if name in OWN or name.endswith("_at") or name in ("status_since", "args"):
            plain[name] = value is not None
        elif name == "data":
            inner = orjson.loads(value)
            plain[name] = {key: _plain(each) if isinstance(each, dict) else each for key, each in inner.items()}
        else:
            plain[name] = value
    return plain
