"""What is rare in a large table is found by an index: one object's audit log, an offer's last change, open entries."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import orjson
import pytest

from server.clock import format_id, new_id, now
from server.db.database import Database
from server.db.tables import Budget
from server.enums import Role
from server.spend.sums import SUM
from server.spend.usage import read_usage
from tests.schema.queries.test_plans import Plan, Reader
from tests.support.api_server import serving
from tests.support.databases import DatabaseMaker
from tests.support.world import World, a_simulator

ROWS = 30_000
EXPLAIN = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "
OBJECT = format_id("inst", new_id())
AUDIT = """
    INSERT INTO audit_event (id, project_id, token_id, created_at, request_id, mutation, input_digest, target, outcome)
    SELECT gen_random_uuid(), $1, gen_random_uuid(), now() - n * interval '1 s', 'req_' || n, 'createInstance', '\\x00',
           CASE n WHEN 10 THEN $3 WHEN $2 - 10 THEN $3 ELSE 'inst_' || gen_random_uuid() END, 'ACCEPTED'
    FROM generate_series(1, $2::int) AS n
"""
# Two products of the same name; one has not changed for long.
CHANGES = """
    INSERT INTO offer_change (region, product_id, product_name, mode, gpu_count, price_e5, is_available, inventory, at)
    SELECT 'here', CASE n WHEN $1 THEN 'still' ELSE 'busy' END, 'product', 'spot', 1, n, true, 'normal',
           now() - n * interval '1 min'
    FROM generate_series(1, $1::int) AS n
"""
INSTANCE = """
    INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image)
    VALUES ($1, $2, 'one', 'EXITED', 'product', 1, 60, 'SPOT', 'nginx')
"""
# One in ten is open, as with many machines that run; five are to be summed.
ENTRIES = """
    INSERT INTO cost_entry (project_id, instance_id, machine, labels, price_e5, product_name, run_began_at, began_at,
                            ended_at, amount_micros, is_summed)
    SELECT $1, $2, 'm' || n, '{}', 36000, 'product', at, at, CASE WHEN n % 10 <> 0 THEN at + interval '1 min' END,
           CASE WHEN n % 10 <> 0 THEN 6000 END, n % 10 <> 0 AND n > 5
    FROM generate_series(1, $3::int) AS n, LATERAL (SELECT now() - n * interval '1 min' AS at) AS began
"""


@pytest.fixture(scope="module")
async def reader(new_database: DatabaseMaker) -> AsyncIterator[Reader]:
    url = await new_database.migrated()
    database = Database(url)
    async with a_simulator() as simulator, serving(url, simulator) as server:
        world = World(database, server.runtime.notifier, simulator)
        await world.open()
        token, caller = await world.new_token(role=Role.ADMIN)
        instance_id = new_id()
        await world.execute(AUDIT, caller.project_id, ROWS, OBJECT)
        await world.execute(CHANGES, ROWS)
        await world.execute(INSTANCE, instance_id, caller.project_id)
        await world.execute(ENTRIES, caller.project_id, instance_id, ROWS)
        await world.execute("ANALYZE")
        yield Reader(server, world, token)
        await world.close()
    await database.close()


async def test_the_audit_log_of_one_object(reader: Reader):
    document = "query ($target: ID!) { auditEvents(filter: {target: $target}) { nodes { target } } }"
    data, _ = await reader.ask(document, target=OBJECT)
    assert data == {"auditEvents": {"nodes": [{"target": OBJECT}] * 2}}

    plan = await reader.plan("audit_event", document, target=OBJECT)

    assert plan.indexes == {"audit_event_of_target"}
    assert plan.read <= 2 * 2  # found in the index, and read


async def test_the_last_minutes_of_an_offer(reader: Reader):
    document = """query ($since: DateTime!, $until: DateTime!) {
        offerHistory(productName: "product", region: "here", billingMode: SPOT, since: $since, until: $until,
                     bucket: 3600) { last { amountMicros } } }"""
    until = now()
    times = {"since": (until - timedelta(minutes=15)).isoformat(), "until": until.isoformat()}
    data, _ = await reader.ask(document, **times)
    assert data == {"offerHistory": [{"last": {"amountMicros": 10}}]}

    plan = await reader.plan("offer_change", document, **times)

    assert "offer_change_of_product" in plan.indexes
    assert "Seq Scan" not in plan.kinds
    assert plan.read < 100


async def test_closed_entries_that_are_to_be_summed(reader: Reader):
    rows = await reader.world.database.raw.fetchval(EXPLAIN + SUM)
    plan = Plan(orjson.loads(rows)[0]["Plan"])

    assert plan.indexes == {"cost_entry_to_sum", "cost_entry_pkey"}
    assert "Seq Scan" not in plan.kinds
    assert await reader.world.value("SELECT sum(amount_micros) FROM cost_day") == 5 * 6000


async def test_the_use_of_a_budget_beside_many_machines_of_others(reader: Reader):
    few, instance_id = await reader.world.new_project("few"), new_id()
    await reader.world.execute(INSTANCE, instance_id, few)
    await reader.world.execute(ENTRIES, few, instance_id, 20)  # two are open
    budget = Budget(id=new_id(), project_id=few, period="MONTH", timezone="UTC", horizon_s=3600)
    plans: list[Plan] = []

    async def explain(statement: str, *values: Any) -> list[Any]:
        rows = await reader.world.database.raw.fetchval(EXPLAIN + statement, *values)
        plans.append(Plan(orjson.loads(rows)[0]["Plan"]))
        return []

    await read_usage(explain, [budget])

    [plan] = plans
    assert "cost_entry_not_summed_by_end" in plan.indexes
    assert "BitmapAnd" not in plan.kinds  # with all that are open
    assert plan.read < 100
