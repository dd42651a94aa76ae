"""The guard in tests/support/status_guard.py notices every way to write `status` or `version` past transitions.py."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from server.clock import new_id
from server.enums import InstanceStatus
from server.instances import transitions
from tests.support.status_guard import ROOT, StatusGuard, writes_status
from tests.support.world import World

ELSEWHERE = ROOT / "server" / "instances" / "elsewhere.py"
IMPORTS = """
import orjson
from sqlalchemy import text, update
from server.clock import new_id
from server.db.tables import Instance
from server.instances import transitions
"""
FORBIDDEN = {
    "ORM assignment": """
        async with database.write() as session:
            instance = await session.get_one(Instance, id)
            instance.status = "EXITED"
    """,
    "ORM assignment that transitions.py flushes": """
        async with database.write() as session:
            instance = await session.get_one(Instance, id)
            instance.version = 7
            await transitions.update(session, id, cause=transitions.Cause(), name="other")
    """,
    "core UPDATE": """
        async with database.write() as session:
            await session.execute(update(Instance).where(Instance.id == id).values(status="EXITED"))
    """,
    "core UPDATE of the version": """
        async with database.write() as session:
            await session.execute(update(Instance).values(version=Instance.version + 1))
    """,
    "text of an UPDATE": """
        async with database.write() as session:
            await session.execute(text("UPDATE instance SET name = 'x', status = 'EXITED'"))
    """,
    "raw UPDATE": """
        await database.raw.execute("UPDATE instance SET status = 'EXITED' WHERE id = $1", id)
    """,
    "raw UPDATE on a connection": """
        async with database.raw.acquire() as connection:
            await connection.fetchval("WITH a AS (UPDATE instance SET version = 2 RETURNING id) SELECT id FROM a")
    """,
    "ORM INSERT": """
        async with database.write() as session:
            session.add(Instance(**fields, status="CREATING"))
    """,
    "raw INSERT": """
        columns = ", ".join(fields)
        await database.raw.execute(
            f"INSERT INTO instance ({columns}, status) SELECT {columns}, 'CREATING'"
            " FROM jsonb_populate_record(NULL::instance, $1::jsonb)", orjson.dumps(fields, default=str).decode()
        )
    """,
    "raw INSERT of rows that transitions.py did not build": """
        columns = ", ".join(fields)
        await database.raw.execute(
            f"INSERT INTO instance ({columns}, status, version) SELECT {columns}, status, version"
            " FROM jsonb_populate_recordset(NULL::instance, $1::jsonb) AS new",
            orjson.dumps([{**fields, "status": "CREATING", "version": 1}], default=str).decode()
        )
    """,
}


@pytest.mark.parametrize("body", FORBIDDEN.values(), ids=FORBIDDEN.keys())
async def test_a_write_outside_of_transitions_is_noticed(world: World, status_guard: StatusGuard, body: str):
    instance = await world.put()

    await _product_code(body)(world.database, instance.id, _fields(world))

    found = status_guard.take()
    assert found != []
    assert all(each.startswith(f"{ELSEWHERE}:") for each in found)


async def test_other_columns_and_reads_are_not_noticed(world: World, status_guard: StatusGuard):
    body = """
        async with database.write() as session:
            instance = await session.get_one(Instance, id)
            instance.novita_status = "exited"
            await session.execute(update(Instance).where(Instance.status == "READY").values(name="x"))
        await database.raw.execute("UPDATE instance SET name = (SELECT 'a' WHERE 1 = 1) WHERE status = 'READY'")
    """
    instance = await world.put()

    await _product_code(body)(world.database, instance.id, {})

    assert status_guard.take() == []


async def test_transitions_and_batched_creates_are_allowed(world: World, status_guard: StatusGuard):
    created = await world.create("one")
    async with world.database.write() as session:
        await transitions.transition(session, created.instance.id, InstanceStatus.STARTING, cause=transitions.Cause())
        await transitions.insert(session, _fields(world), cause=transitions.Cause())

    assert status_guard.take() == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE instance SET status=$1::VARCHAR WHERE instance.id = $2", True),
        ("UPDATE instance AS i SET name = lower('x = y'), version = version + 1 FROM job WHERE i.id = job.id", True),
        ("UPDATE instance SET (name, status) = ('a', 'b')", True),
        ("INSERT INTO instance (id, name) VALUES (1, 2) ON CONFLICT DO NOTHING", True),
        ("UPDATE instance SET observed_at = $1 FROM seen WHERE instance.status = 'READY'", False),
        ("WITH a AS (UPDATE instance SET name = 'x') UPDATE operation SET status = 'FAILED'", False),
        ("UPDATE operation SET status = 'FAILED' WHERE instance_id = $1", False),
        ("INSERT INTO instance_history (status) VALUES ('x')", False),
        ("SELECT status FROM instance WHERE version = 1", False),
    ],
)
def test_statements_are_classified(statement: str, expected: bool):
    assert writes_status(statement) is expected


def _product_code(body: str) -> Callable[[Any, UUID, dict[str, Any]], Awaitable[None]]:
    """A function as if a module of server/ had it."""
    source = f"{IMPORTS}\nasync def run(database, id, fields):\n{body}"
    names: dict[str, Any] = {}
    exec(compile(source, str(ELSEWHERE), "exec"), names)
    return names["run"]


def _fields(world: World) -> dict[str, Any]:
    return {
        "id": new_id(),
        "project_id": world.caller.project_id,
        "name": "new",
        "product_name": "RTX",
        "gpu_count": 1,
        "rootfs_size_gb": 60,
        "billing": "SPOT",
        "image": "nginx",
    }
