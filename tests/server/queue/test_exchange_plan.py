"""The exchange statement stays fast: its plan, with full or just emptied tables, and how often it is sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from server.queue.exchange import EXCHANGE, PLANNER, SCAN_START
from server.queue.handler import Done
from server.queue.producer import Producer
from tests.server.queue.conftest import World
from tests.support.waiting import until

KINDS = ["TEST_URGENT", "TEST_NOTE", "TEST_CHORE"]
FILL = """
    INSERT INTO job (kind, args, priority, instance_id, run_at, due_at)
    SELECT ($2::text[])[1 + n % 3], '{"text": ""}', 1, gen_random_uuid(), now(), now() + n * interval '1 microsecond'
    FROM generate_series(1, $1::int) AS n
"""
FINISHED = """
    INSERT INTO job_history (id, kind, args, priority, status, run_at, attempts, created_at, claimed_at, finished_at)
    SELECT -n, 'TEST_NOTE', '{}', 1, 'SUCCEEDED', now(), 0, now(), now(), now() FROM generate_series(1, $1::int) AS n
"""
TYPES = (
    *("bigint[]", "bigint[]", "bigint[]", "bigint[]", "interval[]", "interval[]", "int[]", "text[]", "text[]"),
    *("text[]", "int[]", "timestamptz[]", "bigint[]", "bigint", "uuid", "bigint"),
)


@pytest.fixture
async def connection(world: World) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection with the settings of a worker's."""
    connection = await world.database.connect(server_settings=PLANNER, command_timeout=60)
    yield connection
    await connection.close()


@pytest.mark.slow
async def test_exchange_reads_only_claimed_rows_of_100_000_waiting_and_1_000_000_finished(
    world: World, connection: "asyncpg.Connection[asyncpg.Record]"
):
    await connection.execute(FINISHED, 1_000_000)
    await connection.execute(FILL, 100_000, KINDS)
    await connection.execute("ANALYZE job; ANALYZE job_history")

    await _assert_plan(world, connection)


async def test_the_plan_is_the_same_after_the_table_was_analyzed_when_empty(
    world: World, connection: "asyncpg.Connection[asyncpg.Record]"
):
    await connection.execute("VACUUM ANALYZE job")
    for _ in range(6):
        await connection.fetch(EXCHANGE, *_values(uuid4(), [], 0))  # the plan is made and kept now
    await connection.execute(FILL, 20_000, KINDS)

    await _assert_plan(world, connection)


async def test_a_thousand_jobs_take_a_handful_of_statements(world: World, monkeypatch: pytest.MonkeyPatch):
    sent: list[str] = []
    connect = Producer._connect

    async def logged(producer: Producer) -> "asyncpg.Connection[asyncpg.Record]":
        connection = await connect(producer)
        connection.add_query_logger(lambda record: sent.append(record.query))
        return connection

    monkeypatch.setattr(Producer, "_connect", logged)
    await world.execute(FILL, 5_000, ["TEST_URGENT", "TEST_URGENT", "TEST_URGENT"])
    world.start(concurrency=10)

    await until(lambda: _is_empty(world))

    assert len(world.ran) == 5_000
    assert EXCHANGE in sent
    assert len(sent) / 5 < 20, "statements per 1,000 jobs, with those that the driver sends on connecting"


async def test_no_connection_is_held_while_handlers_wait(world: World):
    may_end = asyncio.Event()

    async def wait(_work: Any, claim: Any) -> Any:
        async with claim.write():
            pass
        await may_end.wait()
        return Done()

    await world.execute(FILL, 50, ["TEST_NOTE"] * 3)
    world.start(wait, concurrency=50)
    await until(lambda: len(world.ran) == 50)
    await until(lambda: _all_idle(world))
    may_end.set()


async def _all_idle(world: World) -> bool:
    """All connections to this database but the one that asks are idle, and outside of any transaction."""
    busy = await world.value(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND (state <> 'idle' OR wait_event_type = 'Lock') AND backend_type = 'client backend'"
    )
    return busy == 0 and world.database.engine.pool.checkedout() == 0  # pyright: ignore


async def _is_empty(world: World) -> bool:
    return not await world.value("SELECT EXISTS (SELECT FROM job)")


def _values(worker_id: Any, finished: list[tuple[int, int]], limit: int) -> tuple[Any, ...]:
    ids, claims = [job for job, _ in finished], [claim for _, claim in finished]
    floors = [SCAN_START[0]] * len(KINDS), [SCAN_START[1]] * len(KINDS)
    return (ids, claims, [], [], [], [], [], [], [], KINDS, [limit] * len(KINDS), *floors, limit, worker_id, 7)


async def _assert_plan(world: World, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Claim a batch, then explain the exchange that completes it and claims the next."""
    worker_id = uuid4()
    await world.execute(
        "INSERT INTO job_worker (id, name, lease_until) VALUES ($1, 'w', now() + interval '1 hour')", worker_id
    )
    rows = await connection.fetch(EXCHANGE, *_values(worker_id, [], 100))
    assert len(rows) == 101
    finished = sorted((row[0], 7) for row in rows[1:])

    # A prepared statement explained by EXECUTE shows the generic plan, the one that workers run.
    await connection.execute(f"PREPARE exchange ({', '.join(TYPES)}) AS {EXCHANGE}")
    values = zip(_values(worker_id, finished, 100), TYPES, strict=True)
    literals = ", ".join([await _literal(connection, value, kind) for value, kind in values])
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE exchange ({literals})")
    nodes = list(_nodes(json.loads(explained)[0]["Plan"]))

    scans = {(node["Node Type"], node.get("Index Name")) for node in nodes if node.get("Relation Name") == "job"}
    scans -= {("ModifyTable", None)}
    assert {kind for kind, _ in scans} <= {"Index Scan", "Index Only Scan", "Tid Scan"}
    assert {index for _, index in scans} == {"job_claimable", "job_pkey", None}
    claims = [node for node in nodes if node.get("Index Name") == "job_claimable" and node["Actual Loops"] > 0]
    assert len(claims) == 2
    for node in claims:
        assert node["Actual Rows"] * node["Actual Loops"] <= 3 * 100
        assert node.get("Rows Removed by Filter", 0) <= 100, "nothing is passed by but what is running"
    assert nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"] < 100 * 40


async def _literal(connection: "asyncpg.Connection[asyncpg.Record]", value: Any, kind: str) -> str:
    """The value as SQL: EXPLAIN EXECUTE takes no parameters."""
    return await connection.fetchval(f"SELECT quote_literal($1::{kind}::text) || '::{kind}'", value)


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
