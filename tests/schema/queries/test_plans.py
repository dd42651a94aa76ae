"""Pages of long lists are read from an index, so that page 10,000 costs as much as page 1."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from schema.filters import InstanceOrderBy, OrderDirection
from schema.pagination import order_cursor
from server.db.database import Database
from server.instances.queries import fast_page
from server.instances.queries.instances import (
    InstanceFilter,
    InstanceOrder,
    InstanceRow,
    page_values,
    place_of,
    select_page,
)
from tests.support.api_server import Server, serving
from tests.support.databases import DatabaseMaker
from tests.support.statements import Statement, listening
from tests.support.world import World, a_simulator

ROWS = 30_000
DEEP = 20_000  # rows before the deep page
FIRST = 50

INSTANCES = """
    INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image,
                          created_at, updated_at, status_since, deleted_at, price_per_hour_e5, labels,
                          lifetime_due_at, lifetime_action)
    SELECT gen_random_uuid(), $1, 'name-' || lpad(n::text, 6, '0'),
           CASE WHEN n % 3 = 0 THEN 'DELETED' ELSE 'EXITED' END, 'p', 1, 60, 'SPOT', 'i',
           now() - n * interval '1 second', now(), now() - (n * 7919 % 30011) * interval '1 second',
           CASE WHEN n % 3 = 0 THEN now() END, n * 7907 % 30013,
           CASE WHEN n % 500 = 1 THEN jsonb_build_object('team', 't' || n % 7, 'n', n::text) ELSE '{}' END,
           CASE WHEN n % 50 = 1 THEN timestamptz '2030-01-01' + n * interval '1 minute' END,
           CASE WHEN n % 50 = 1 THEN 'DELETE' END
    FROM generate_series(1, $2::int) AS n
"""
OPERATIONS = """
    INSERT INTO operation (id, project_id, instance_id, kind, status, phase, created_at, finished_at)
    SELECT gen_random_uuid(), project_id, id, 'STOP', 'SUCCEEDED', 'OVER', created_at, created_at
    FROM instance WHERE project_id = $1
"""
DELIVERIES = """
    INSERT INTO delivery (id, project_id, instance_id, event_id, event_type, url, body, status, keeps_order, attempts,
                          created_at, asked_at, finished_at)
    SELECT gen_random_uuid(), project_id, id, gen_random_uuid(), 'instance.exited', 'http://x', '{}', 'DELIVERED',
           false, 1, created_at, created_at, created_at
    FROM instance WHERE project_id = $1
"""
JOBS = """
    INSERT INTO job_history (id, kind, args, priority, status, project_id, run_at, attempts, created_at, claimed_at,
                             finished_at)
    SELECT n, 'CLEANUP', '{}', 1, 'SUCCEEDED', CASE WHEN n % 50 = 0 THEN $1::uuid ELSE $3::uuid END, now(), 1, now(),
           now(), now()
    FROM generate_series(1, $2::int) AS n
"""

ORDERS = {
    "CREATED_AT": "instance_living_by_project",
    "NAME": "instance_name_is_unique_among_the_living",
    "STATUS": "instance_living_by_status",
    "STATUS_SINCE": "instance_living_by_status_since",
    "PRICE": "instance_living_by_price",
}


class Reader:
    """A caller whose statements are seen."""

    def __init__(self, server: Server, world: World, token: str) -> None:
        self.server = server
        self.world = world
        self.token = token

    async def ask(self, document: str, **variables: Any) -> tuple[dict[str, Any], list[Statement]]:
        with listening(self.server) as statements:
            answer = await self.server.ask(document, token=self.token, variables=variables)
        return answer.data, statements

    async def plan(self, table: str, document: str, **variables: Any) -> "Plan":
        """How the one statement that finds rows of the table was carried out; what it found may be read by its ids."""
        _, statements = await self.ask(document, **variables)
        by_ids, *_ = fast_page.select_by_ids(frozenset(fast_page.ALL_COLUMNS))
        (found,) = [each for each in statements if f"FROM {table}" in each[0] and each[0] != by_ids]
        statement, parameters = found
        pool = self.world.database.raw
        rows = await pool.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", *parameters)
        return Plan(orjson.loads(rows)[0]["Plan"])


class Plan:
    def __init__(self, root: dict[str, Any]) -> None:
        self.nodes: list[dict[str, Any]] = []
        waiting = [root]
        while waiting:
            node = waiting.pop()
            self.nodes.append(node)
            waiting += node.get("Plans", [])

    @property
    def shape(self) -> list[tuple[str, str | None]]:
        return sorted((node["Node Type"], node.get("Index Name")) for node in self.nodes)

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    @property
    def kinds(self) -> set[str]:
        return {node["Node Type"] for node in self.nodes}

    @property
    def read(self) -> int:
        """Rows that were scanned, returned or not."""
        scans = [node for node in self.nodes if "Scan" in node["Node Type"]]
        return sum(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans)


@pytest.fixture(scope="module")
async def reader(new_database: DatabaseMaker) -> AsyncIterator[Reader]:
    url = await new_database.migrated()
    database = Database(url)
    async with a_simulator() as simulator, serving(url, simulator) as server:
        world = World(database, server.runtime.notifier, simulator)
        await world.open()
        token, caller = await world.new_token()
        other = await world.new_project("other")
        for project in (other, caller.project_id):
            await world.execute(INSTANCES, project, ROWS)
            await world.execute(OPERATIONS, project)
            await world.execute(DELIVERIES, project)
        await world.execute(JOBS, caller.project_id, ROWS, other)
        await world.execute("ANALYZE")
        yield Reader(server, world, token)
        await world.close()
    await database.close()


LIST = """query ($filter: InstanceFilter, $order: InstanceOrderBy, $after: String, $first: Int!) {
    instances(filter: $filter, orderBy: $order, first: $first, after: $after) {
        nodes { id } pageInfo { endCursor hasNextPage } } }"""


async def deep_cursor(reader: Reader, order: dict[str, str]) -> str:
    """As if one had read on for that long: hundreds of pages would give the same."""
    field, direction = InstanceOrder(order["field"]), OrderDirection(order["direction"])
    project = await reader.world.value("SELECT id FROM project WHERE name = 'default'")
    descending = direction is OrderDirection.DESC
    page = select_page(InstanceFilter(), field, descending=descending, is_later=False, first=1).offset(DEEP - 1)
    async with reader.world.database.read() as session:
        row = InstanceRow._make((await session.execute(page, page_values(project, None))).one())
    return order_cursor(InstanceOrderBy(field=field, direction=direction).name, place_of(row, field), row.id)


@pytest.mark.parametrize("direction", ["ASC", "DESC"])
@pytest.mark.parametrize("field", list(ORDERS))
async def test_a_deep_page_is_read_as_the_first_one(reader: Reader, field: str, direction: str):
    order = {"field": field, "direction": direction}
    cursor = await deep_cursor(reader, order)
    cursor = await _on(reader, order, cursor)

    first = await reader.plan("instance", LIST, order=order, first=FIRST)
    deep = await reader.plan("instance", LIST, order=order, first=FIRST, after=cursor)

    for plan in (first, deep):
        assert plan.indexes == {ORDERS[field]}
        assert "Sort" not in plan.kinds  # none that has to see all rows first; names are sorted as they come
        assert "Seq Scan" not in plan.kinds
    assert deep.shape == first.shape
    # Only what is shown: the page, one more to see whether there is any, and a few around the place.
    assert first.read <= FIRST + 3
    assert deep.read <= FIRST + 3


async def _on(reader: Reader, order: dict[str, str], cursor: str) -> str:
    """The cursor is a real one: the page behind it goes on."""
    data, _ = await reader.ask(LIST, order=order, first=1, after=cursor)
    page = data["instances"]
    assert page["pageInfo"]["hasNextPage"] is (DEEP + 1 < ROWS * 2 // 3)
    return page["pageInfo"]["endCursor"] or cursor


@pytest.mark.parametrize(
    ("filter", "index"),
    [
        ({"nameStartsWith": "NAME-00012"}, "instance_living_by_part_of_name"),
        ({"nameContains": "AME-00012"}, "instance_living_by_part_of_name"),
        ({"labels": [{"key": "n", "value": "501"}]}, "instance_by_label_or_key"),
        ({"labelFilters": [{"exists": "team"}]}, "instance_by_label_or_key"),
        ({"endsBefore": "2030-01-02T00:00:00Z"}, "instance_by_end_of_lifetime"),
        ({"labelFilters": [{"in": {"key": "team", "values": ["t1", "t2"]}}]}, "instance_by_label_or_key"),
    ],
)
async def test_what_is_rare_is_found_by_its_index(reader: Reader, filter: dict[str, Any], index: str):
    plan = await reader.plan("instance", LIST, filter=filter, first=FIRST)
    assert index in plan.indexes or "instance_living_by_start_of_name" in plan.indexes
    assert plan.read < 1000


@pytest.mark.parametrize(
    ("field", "table", "index"),
    [
        ("operations", "operation", "operation_by_project"),
        ("webhookDeliveries", "delivery", "delivery_by_project"),
        ("jobs", "job", "job_history_by_project"),
    ],
)
async def test_the_other_long_lists_are_read_from_their_place_too(reader: Reader, field: str, table: str, index: str):
    document = f"""query ($after: String, $first: Int!) {{ {field}(first: $first, after: $after) {{
        nodes {{ id }} pageInfo {{ endCursor hasNextPage }} }} }}"""
    data, _ = await reader.ask(document, first=100)
    cursor = data[field]["pageInfo"]["endCursor"]
    for _ in range(3):
        data, _ = await reader.ask(document, first=100, after=cursor)
        cursor = data[field]["pageInfo"]["endCursor"]

    first = await reader.plan(table, document, first=FIRST)
    deep = await reader.plan(table, document, first=FIRST, after=cursor)

    for plan in (first, deep):
        assert index in plan.indexes
        assert plan.read <= 3 * (FIRST + 1)
    assert deep.shape == first.shape
