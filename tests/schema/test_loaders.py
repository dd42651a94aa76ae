"""Nested lists: a query takes the same number of statements however many rows it has."""

from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schema import ids
from server.clock import now
from server.db.database import Database
from server.db.notify import Notifier
from server.enums import InstanceStatus, Role
from tests.schema.test_permissions import QUERIES, document
from tests.support.api import Api
from tests.support.api_server import serving
from tests.support.databases import DatabaseMaker
from tests.support.seed import put_volume
from tests.support.statements import listening, orm_objects
from tests.support.waiting import until
from tests.support.world import World, a_simulator

MANY = 100
SIZES = (1, 10, 100)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)

# The lists of the schema, and the arguments that limit each. A list that is not here has to be in WHOLE.
LISTS = {
    "instances": lambda _, size: {"first": size},
    "operations": lambda _, size: {"first": size},
    "jobs": lambda _, size: {"first": size},
    "events": lambda _, size: {"first": size},
    "webhookDeliveries": lambda _, size: {"first": size},
    "webhooks": lambda _, size: {"first": size},
    "volumes": lambda _, size: {"first": size},
    "budgets": lambda _, size: {"first": size},
    "quotas": lambda _, size: {"first": size},
    "alerts": lambda _, size: {"first": size},
    "tokens": lambda _, size: {"first": size},
    "auditEvents": lambda _, size: {"first": size},
    "projects": lambda _, size: {"first": size},
    "nodes": lambda made, size: {"ids": made[:size]},
    "market": lambda _, size: {"filter": {"productNames": [f"product {number}" for number in range(size)]}},
    "offerHistory": lambda _, size: {
        "productName": "product 0",
        "region": "r",
        "billingMode": "SPOT",
        "bucket": 3600,
        "since": "2026-01-01T00:00:00Z",
        "until": (NEW_YEAR + timedelta(hours=size)).isoformat(),
    },
}
# Not out of the database, or without rows here: the events of a project use the statement of `events`.
WHOLE = {
    *("projectEvents", "products", "regions", "templates", "registryAuths"),
    *("networks", "prewarms", "providerJobs", "cacheStats", "unlinkedVolumes"),
}


@pytest.fixture(scope="module")
async def fleet(new_database: DatabaseMaker) -> AsyncIterator[tuple[Api, list[str]]]:
    """A hundred instances, each with operations, attempts, probes, a webhook and deliveries."""
    url = await new_database.migrated()
    database = Database(url)
    signals = Notifier(database)
    signals.start()
    async with a_simulator() as simulator, serving(url, simulator, query_max_cost=10_000_000) as server:
        world = World(database, signals, simulator)
        await world.open()
        token, caller = await world.new_token("default", Role.ADMIN)
        world.caller = caller
        made = [await _instance(world, number) for number in range(MANY)]

        async def is_tailed() -> bool:
            is_empty = not await world.value("SELECT count(*) FROM outbox")
            return is_empty and server.runtime.tail.head().position == await world.value("SELECT head FROM event_log")

        await until(is_tailed)
        assert await world.value("SELECT count(*) FROM event") >= MANY
        yield Api(server, world, token, caller), made
        await world.close()
    await signals.stop()
    await database.close()


async def _instance(world: World, number: int) -> str:
    row = await world.put(
        InstanceStatus.EXITED,
        name=f"n{number:03}",
        novita_id=f"m{number}",
        webhook_url="http://127.0.0.1:9/hook",
        labels={"number": str(number)},
    )
    project, token = world.caller.project_id, world.caller.token_id
    await world.execute(
        """INSERT INTO operation (id, project_id, instance_id, kind, status, phase, requested_by, finished_at)
           VALUES (gen_random_uuid(), $1, $2, 'CREATE', 'SUCCEEDED', 'OVER', $3, now()),
                  (gen_random_uuid(), $1, $2, 'STOP', 'RUNNING', 'STOPPING', $3, NULL)""",
        project,
        row.id,
        token,
    )
    await world.execute(
        """INSERT INTO attempt (id, operation_id, instance_id, number, region, status, finished_at)
           SELECT gen_random_uuid(), id, instance_id, 1, 'r', 'REJECTED', now() FROM operation
           WHERE instance_id = $1 AND kind = 'CREATE'""",
        row.id,
    )
    await world.execute(
        "INSERT INTO probe_result (instance_id, port, type, is_healthy, latency_ms, checked_at)"
        " VALUES ($1, 80, 'http', true, 1, $2)",
        row.id,
        now(),
    )
    await world.execute(
        """INSERT INTO delivery (id, project_id, instance_id, event_id, event_type, url, body, status, keeps_order,
                                 attempts, created_at, asked_at, finished_at)
           VALUES (gen_random_uuid(), $1, $2, gen_random_uuid(), 't', 'u', 'b', 'DELIVERED', false, 1, now(), now(),
                   now())""",
        project,
        row.id,
    )
    await world.execute(
        """INSERT INTO delivery_attempt (delivery_id, number, started_at, finished_at, http_status)
           SELECT id, 1, now(), now(), 200 FROM delivery WHERE instance_id = $1""",
        row.id,
    )
    await world.execute(
        """INSERT INTO outbox (id, type, project_id, instance_id, caused_by, data)
           SELECT gen_random_uuid(), 'operation.started', $1, $2, $3,
                  jsonb_build_object('operation', to_jsonb(operation)) FROM operation
           WHERE instance_id = $2 AND kind = 'STOP'""",
        project,
        row.id,
        token,
    )
    await world.execute(
        """INSERT INTO job (kind, args, priority, project_id, instance_id, run_at, due_at)
           VALUES ('CLEANUP', '{}', 1, $1, $2, now() + interval '1 day', now() + interval '1 day')""",
        project,
        row.id,
    )
    await world.execute(
        "INSERT INTO machine (instance_id, number, novita_id, began_at) VALUES ($1, 1, $2, now())",
        row.id,
        row.novita_id,
    )
    volume = await put_volume(world, name=f"volume of {row.name}")
    await world.execute("INSERT INTO volume_attachment VALUES ($1, $2, true)", row.id, volume.id)
    await world.execute(
        """INSERT INTO audit_event (id, project_id, token_id, request_id, mutation, input_digest, outcome)
           VALUES (gen_random_uuid(), $1, $2, 'req_1', 'createInstance', '', 'ACCEPTED')""",
        project,
        token,
    )
    await world.execute(
        """INSERT INTO project_webhook (id, project_id, url, types, after)
           VALUES (gen_random_uuid(), $1, 'u', '["balance.low"]', 0)""",
        project,
    )
    await world.execute(
        """INSERT INTO budget (id, project_id, name, period, timezone, limit_micros, thresholds, action, exempt,
                               horizon_s)
           VALUES (gen_random_uuid(), $1, $2, 'MONTH', 'UTC', 1, '[]', 'NOTIFY', '[]', 3600)""",
        project,
        f"b{number}",
    )
    await world.execute(
        """INSERT INTO quota (id, project_id, label_key, label_value, max_gpus)
           VALUES (gen_random_uuid(), $1, 'number', $2, 1000)""",
        project,
        f"q{number}",
    )
    await world.execute("INSERT INTO project (id, name) VALUES (gen_random_uuid(), $1)", f"p{number}")
    await world.execute(
        """INSERT INTO market_alert (id, project_id, gpu_count, held_for, cooldown)
           VALUES (gen_random_uuid(), $1, 1, '30 s', '1 h')""",
        project,
    )
    await world.execute(
        """INSERT INTO offer (region, product_id, product_name, mode, gpu_count, is_available, product, seen_at,
                              changed_at)
           VALUES ('r', $1, $1, 'spot', 1, true, '{}', now(), now())""",
        f"product {number}",
    )
    await world.execute(
        """INSERT INTO token (id, project_id, name, role, hash, hint, created_by)
           VALUES (gen_random_uuid(), $1, 't', 'READER', $2, 'abcd', $3)""",
        project,
        number.to_bytes(32, "big"),
        token,
    )
    return ids.format_id(ids.INSTANCE, row.id)


def test_every_list_of_the_schema_is_counted():
    lists = {name for name, field in QUERIES.items() if "first" in field.args or str(field.type).startswith("[")}
    assert lists == set(LISTS) | WHOLE


@pytest.mark.parametrize("name", sorted(LISTS))
async def test_more_rows_take_no_more_statements(fleet: tuple[Api, list[str]], name: str):
    api, made = fleet
    counts: dict[int, int] = {}
    await _counted(api, _document(name, LISTS[name](made, 1)), LISTS[name](made, 1), name)  # some is remembered
    for size in SIZES:
        given = LISTS[name](made, size)
        asked = _document(name, given)
        rows, statements = await _counted(api, asked, given, name)
        assert rows == size, name
        counts[size] = statements
    _check(counts.values())


def _check(counts: Collection[int]) -> None:
    """The same for all sizes. Give or take: children of one kind in two places are asked for at once if they meet."""
    assert max(counts) - min(counts) <= 2, counts
    assert 1 <= max(counts) <= 20


async def test_the_lists_within_a_fleet_take_no_more_either(fleet: tuple[Api, list[str]]):
    api, _ = fleet
    document = """query ($size: Int!) { fleet { items(first: $size) { nodes { instance {
        name env { key } webhook { url } health { status } operations { attempts { number } }
        openOperation { requestedBy { name } attempts { number } } } } } } }"""
    counts = []
    await api.ask(document, size=1)  # what is remembered from then on
    for size in SIZES:
        with listening(api.server) as statements:
            answer = await api.ask(document, size=size)
        assert len(answer.data["fleet"]["items"]["nodes"]) == size
        counts.append(len(statements))
    _check(counts)


# What is read by an id, a name or nothing; lists are those of LISTS.
SINGLES = {
    "instance": lambda made: {"id": made[0]},
    "instanceByName": lambda _: {"name": "n000"},
    "fleet": lambda _: {},
    "fleetStats": lambda _: {},
    "jobStats": lambda _: {},
    "serverInfo": lambda _: {},
    "spend": lambda _: {},
    "viewer": lambda _: {},
}


@pytest.mark.parametrize("name", sorted(LISTS | SINGLES))
async def test_a_read_makes_no_objects_of_the_orm(fleet: tuple[Api, list[str]], name: str):
    api, made = fleet
    given = SINGLES[name](made) if name in SINGLES else LISTS[name](made, 10)
    asked = document("query", name, QUERIES[name], given, depth=3)
    with orm_objects() as objects:
        answer = await api.server.ask(asked, token=api.token, variables=given)
    assert answer.data[name]
    assert objects == []


async def test_objects_of_several_types_by_id_are_none_of_the_orm(fleet: tuple[Api, list[str]]):
    api, made = fleet
    lists = ("budgets", "quotas", "alerts", "tokens", "operations", "volumes", "webhooks", "projects")
    asked = " ".join(f"{name}(first: 1) {{ nodes {{ id }} }}" for name in lists)
    listed = await api.ask(f"{{ {asked} }}")
    given = [made[0], *(listed.data[name]["nodes"][0]["id"] for name in lists)]
    fields = """id __typename ... on Instance { machines { number } } ... on Budget { spent { amountMicros } }
        ... on Quota { usedGpus } ... on Token { limits { budget { name } quota { maxGpus } } }"""
    with orm_objects() as objects:
        answer = await api.ask(f"query ($ids: [ID!]!) {{ nodes(ids: $ids) {{ {fields} }} }}", ids=given)
    assert [each["id"] for each in answer.data["nodes"]] == given
    assert answer.data["nodes"][0]["machines"] == [{"number": 1}]
    assert objects == []


async def test_an_awaited_operation_is_no_object_of_the_orm(fleet: tuple[Api, list[str]]):
    api, _ = fleet
    listed = await api.ask("{ operations(first: 1, filter: { statuses: [RUNNING] }) { nodes { id } } }")
    (operation,) = listed.data["operations"]["nodes"]
    with orm_objects() as objects:
        found = await api.ask("query ($id: ID!) { awaitOperation(id: $id, timeout: 0) { status } }", **operation)
    assert (found.data["awaitOperation"], objects) == ({"status": "RUNNING"}, [])


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("instanceUpdated", "($id: ID!) { instanceUpdated(id: $id) { instance { name machines { number } } } }"),
        ("fleetStats", "{ fleetStats { total } }"),
        ("jobStats", "{ jobStats { workers } }"),
        ("market", "{ market { region } }"),
    ],
)
async def test_a_subscription_begins_without_objects_of_the_orm(fleet: tuple[Api, list[str]], name: str, asked: str):
    api, made = fleet
    with orm_objects() as objects:
        document, variables = f"subscription {asked}", {"id": made[0]}
        async with api.server.watching(document, token=api.token, variables=variables) as socket:
            assert await socket.next(name)
    assert objects == []


async def test_an_operation_that_is_watched_begins_without_objects_of_the_orm(fleet: tuple[Api, list[str]]):
    api, _ = fleet
    listed = await api.ask("{ operations(first: 1, filter: { statuses: [RUNNING] }) { nodes { id } } }")
    document = "subscription ($id: ID!) { operationUpdated(id: $id) { operation { status } } }"
    (operation,) = listed.data["operations"]["nodes"]
    with orm_objects() as objects:
        async with api.server.watching(document, token=api.token, variables=operation) as socket:
            assert await socket.next("operationUpdated") == {"operation": {"status": "RUNNING"}}
    assert objects == []


def _document(name: str, given: dict[str, Any]) -> str:
    if name == "nodes":
        fields = """id ... on Instance { name env { key } health { status } webhook { url }
            openOperation { requestedBy { name project { name } } attempts { number } instance { name } } }"""
        return f"query ($ids: [ID!]!) {{ nodes(ids: $ids) {{ {fields} }} }}"
    whole = document("query", name, QUERIES[name], given, depth=3)
    if str(QUERIES[name].type).startswith("["):
        return whole
    # Only the nodes: they are all of it.
    start = whole.index("nodes {")
    head = whole[: whole.index("{ __typename")]
    return (
        f"{head} {{ {_balanced(whole[start:])} totalCount }} }}"
        if name in COUNTED
        else f"{head} {{ {_balanced(whole[start:])} }} }}"
    )


COUNTED = {"instances", "operations", "webhookDeliveries", "tokens", "projects"}


def _balanced(text: str) -> str:
    """Up to where the first brace is closed."""
    open_braces = 0
    for place, letter in enumerate(text):
        open_braces += (letter == "{") - (letter == "}")
        if letter == "}" and open_braces == 0:
            return text[: place + 1]
    raise AssertionError(text)


async def _counted(api: Api, asked: str, given: dict[str, Any], name: str) -> tuple[int, int]:
    with listening(api.server) as statements:
        answer = await api.server.ask(asked, token=api.token, variables=given)
    found = answer.data[name]
    return len(found if isinstance(found, list) else found["nodes"]), len(statements)
