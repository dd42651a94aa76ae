"""The one statement stays quick: its plan, with the tables full or just emptied, and how often it is sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from server.queue.lanes import Lanes
from server.queue.outcome import Done
from server.queue.turn import BEGINNING, PLANNER, TURN
from tests.server.queue.conftest import World, until

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
async def lane(world: World) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection as the worker's own."""
    connection = await world.database.connect(server_settings=PLANNER, command_timeout=60)
    yield connection
    await connection.close()


@pytest.mark.slow
async def test_a_turn_touches_only_what_it_takes_with_100_000_waiting_and_1_000_000_finished(
    world: World, lane: "asyncpg.Connection[asyncpg.Record]"
):
    await lane.execute(FINISHED, 1_000_000)
    await lane.execute(FILL, 100_000, KINDS)
    await lane.execute("ANALYZE job; ANALYZE job_history")

    await _assert_plan(world, lane)


async def test_the_plan_is_the_same_after_the_table_was_analyzed_when_empty(
    world: World, lane: "asyncpg.Connection[asyncpg.Record]"
):
    await lane.execute("VACUUM ANALYZE job")
    for _ in range(6):
        await lane.fetch(TURN, *_turn(uuid4(), [], 0))  # the plan is made and kept now
    await lane.execute(FILL, 20_000, KINDS)

    await _assert_plan(world, lane)


async def test_a_thousand_jobs_take_a_handful_of_statements(world: World, monkeypatch: pytest.MonkeyPatch):
    sent: list[str] = []
    connect = Lanes._connect

    async def logged(lanes: Lanes) -> "asyncpg.Connection[asyncpg.Record]":
        connection = await connect(lanes)
        connection.add_query_logger(lambda record: sent.append(record.query))
        return connection

    monkeypatch.setattr(Lanes, "_connect", logged)
    await world.execute(FILL, 5_000, ["TEST_URGENT", "TEST_URGENT", "TEST_URGENT"])
    world.start(concurrency=10)

    await until(lambda: _is_empty(world))

    assert len(world.ran) == 5_000
    assert TURN in sent
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


def _turn(worker_id: Any, finished: list[tuple[int, int]], limit: int) -> tuple[Any, ...]:
    ids, claims = [job for job, _ in finished], [claim for _, claim in finished]
    floors = [BEGINNING[0]] * len(KINDS), [BEGINNING[1]] * len(KINDS)
    return (ids, claims, [], [], [], [], [], [], [], KINDS, [limit] * len(KINDS), *floors, limit, worker_id, 7)


async def _assert_plan(world: World, lane: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Take a batch, then explain the turn that hands it in and takes the next."""
    worker_id = uuid4()
    await world.execute(
        "INSERT INTO job_worker (id, name, lease_until) VALUES ($1, 'w', now() + interval '1 hour')", worker_id
    )
    taken = await lane.fetch(TURN, *_turn(worker_id, [], 100))
    assert len(taken) == 101
    finished = sorted((row[0], 7) for row in taken[1:])

    # A prepared statement explained by EXECUTE shows the generic plan, the one that workers run.
    await lane.execute(f"PREPARE turn ({', '.join(TYPES)}) AS {TURN}")
    values = zip(_turn(worker_id, finished, 100), TYPES, strict=True)
    literals = ", ".join([await _literal(lane, value, kind) for value, kind in values])
    explained = await lane.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE turn ({literals})")
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


async def _literal(lane: "asyncpg.Connection[asyncpg.Record]", value: Any, kind: str) -> str:
    """The value as SQL: EXPLAIN EXECUTE takes no parameters."""
    return await lane.fetchval(f"SELECT quote_literal($1::{kind}::text) || '::{kind}'", value)


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
