"""Documents that users send, executed with compiled selections and by the library alone, on real rows."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from inspect import isawaitable
from typing import Any

import pytest
from graphql import GraphQLError, parse
from strawberry.dataloader import DataLoader
from strawberry.execution import optimized_is_awaitable
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from bench.reads_data import ROOT, documents_of, fill
from schema.context import Context, Services
from schema.loaders import Loaders
from schema.root import schema
from server.auth.caller import Caller
from server.db.database import Database
from server.enums import Role
from server.graphql.execution.encode import encoded
from server.graphql.execution.executor import CompilingExecutor
from tests.server.graphql.execution.test_compiler import operation_of
from tests.support.api_server import Server, serving
from tests.support.databases import DatabaseMaker
from tests.support.statements import listening
from tests.support.world import World, a_simulator

WEB = documents_of(ROOT / "web/src/documents")
EXAMPLES = documents_of(ROOT / "examples/python-typed")
NESTED = """query ($id: ID!, $first: Int, $yes: Boolean!) {
  instances(first: 20) {
    totalCount
    edges { cursor node { id openOperation { id queue { position } } } }
    nodes {
      name env { key value secret } webhook { url } health { status endpoints { port error { kind } } }
      some: operations(first: $first) { kind requestedBy { name project { name } } instance { id env { key } } }
      all: operations { id attempts { number region } }
      failure { code help } operations @include(if: $yes) { id }
    }
  }
  node(id: $id) { __typename id ... on Instance { health { status } operations(first: 1) { id instance { name } } } }
  operations(first: 5) { totalCount nodes { id attempts { number } requestedBy { name } } }
  webhookDeliveries(first: 5) { totalCount nodes { id attempts { number httpStatus } } }
}"""

OFFERS = """{ market(filter: { regions: ["r"] }) {
  region productName billingMode isAvailable pricePerHour { amountMicros } lastAvailableAt availableFor30d
} }"""
OFFER_ROWS = """
    INSERT INTO offer (region, product_id, product_name, mode, gpu_count, price_e5, is_available, product, seen_at,
                       changed_at)
    SELECT 'r', 'p' || n, 'product ' || n, 'spot', 1, n, n % 2 = 0, '{}', timestamptz '2026-01-01 00:00Z',
           timestamptz '2026-01-01 00:00Z'
    FROM generate_series(1, 300) AS n
"""
OTHER_ROWS = (
    """
    INSERT INTO volume (id, project_id, name, region, cluster_id, size_gb, status, novita_id)
    SELECT gen_random_uuid(), project_id, 'data-' || n, 'AS-SGP-02', 'as-sgp-2', 10, 'AVAILABLE', 'v' || n
    FROM (SELECT DISTINCT project_id FROM token) AS project, generate_series(1, 15) AS n
    """,
    """
    INSERT INTO volume_attachment
    SELECT instance.id, volume.id, true
    FROM instance JOIN volume ON instance.name = replace(volume.name, 'data', 'worker')
    """,
    """
    INSERT INTO quota (id, project_id, label_key, label_value, max_gpus)
    SELECT gen_random_uuid(), project_id, 'team', 't' || n, 100
    FROM (SELECT DISTINCT project_id FROM token) AS project, generate_series(1, 12) AS n
    """,
    """
    INSERT INTO budget (id, project_id, name, period, timezone, limit_micros, thresholds, action, exempt, horizon_s)
    SELECT gen_random_uuid(), project_id, 'b' || n, 'MONTH', 'UTC', n, '[]', 'NOTIFY', '[]', 3600
    FROM (SELECT DISTINCT project_id FROM token) AS project, generate_series(1, 12) AS n
    """,
    """
    INSERT INTO token (id, project_id, name, role, hash, hint)
    SELECT gen_random_uuid(), project_id, 't' || n, 'READER', decode(md5(n::text) || md5(n::text), 'hex'), 'abcd'
    FROM (SELECT DISTINCT project_id FROM token) AS project, generate_series(1, 12) AS n
    """,
    """
    INSERT INTO quota (id, project_id, token_id, max_gpus)
    SELECT gen_random_uuid(), project_id, id, 5 FROM token WHERE name LIKE 't%'
    """,
)


@dataclass
class Bench:
    server: Server
    caller: Caller

    async def run(self, kind: Any, text: str, variables: dict[str, Any], times: int = 1) -> tuple[Any, Any]:
        """The last of several executions of one document."""
        document = parse(text)
        operation = operation_of(document)
        answer: Any = None
        for _ in range(times):
            services = Services(**{each.name: getattr(self.server.runtime, each.name) for each in fields(Services)})
            context = Context(services, request_id="req", is_socket=False, selections=operation.selections)
            context.admit(self.caller)
            executor = kind.build(
                schema._schema,
                document,
                context_value=context,
                raw_variable_values=variables,
                is_awaitable=optimized_is_awaitable,
            )
            if isinstance(executor, CompilingExecutor):
                executor.use_plan(operation)
            result = executor.execute_operation()
            answer = await result if isawaitable(result) else result
        errors = sorted((error.formatted for error in answer.errors or ()), key=json.dumps)
        return json.loads(encoded(answer.data)), errors


@pytest.fixture(scope="module")
async def bench(new_database: DatabaseMaker) -> AsyncIterator[Bench]:
    url = await new_database.migrated()
    database = Database(url)
    async with a_simulator() as simulator, serving(url, simulator) as server:
        world = World(database, server.runtime.notifier, simulator)
        await world.open()
        caller = replace(await world.new_caller(), role=Role.ADMIN)
        await fill(url, instances=30)
        await world.execute(OFFER_ROWS)
        for each in OTHER_ROWS:
            await world.execute(each)
        yield Bench(server, caller)
        await world.close()
    await database.close()


async def ids_of(bench: Bench) -> tuple[str, str]:
    data, _ = await bench.run(CompilingExecutor, "{ operations(first: 1) { nodes { id instance { id } } } }", {})
    (operation,) = data["operations"]["nodes"]
    return operation["instance"]["id"], operation["id"]


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize(
    "name",
    [
        *("FleetPage", "InstanceDetail", "Deliveries", "AwaitOperation", "nested", "offers", "refused"),
        *("VolumePage", "Volumes", "Quotas", "Budgets", "Tokens"),
    ],
)
async def test_the_answer_is_that_of_the_library_alone(bench: Bench, name: str, times: int):
    instance_id, operation_id = await ids_of(bench)
    text, variables = {
        "FleetPage": (WEB["FleetPage"], {"direction": "DESC"}),
        "InstanceDetail": (WEB["InstanceDetail"], {"id": instance_id}),
        "Deliveries": (WEB["Deliveries"], {"id": instance_id}),
        "AwaitOperation": (EXAMPLES["AwaitOperation"], {"id": operation_id}),
        "nested": (NESTED, {"id": instance_id, "first": 1, "yes": True}),
        "offers": (OFFERS, {}),
        **{each: (WEB[each], {}) for each in ("VolumePage", "Volumes", "Quotas", "Budgets", "Tokens")},
        "refused": (NESTED, {"id": instance_id, "first": 1000, "yes": False}),
    }[name]
    expected = await bench.run(StrawberryGraphQLCoreExecutionContext, text, variables)
    assert await bench.run(CompilingExecutor, text, variables, times) == expected
    assert bool(expected[1]) == (name == "refused")


@pytest.mark.parametrize("name", ["health", "attempts", "operations", "token"])
async def test_a_failed_read_is_reported_as_by_the_library_and_not_repeated(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
):
    calls = 0

    async def fails(*_: Any, **__: Any) -> Any:
        nonlocal calls
        calls += 1
        raise GraphQLError("the read failed", extensions={"code": "UNAVAILABLE"})

    if name == "operations":
        monkeypatch.setattr(Loaders, "_newest_operations", fails)
    else:
        loader = cached_property(lambda loaders: DataLoader(fails, cache=loaders.keep))
        loader.__set_name__(Loaders, name)
        monkeypatch.setattr(Loaders, name, loader)
    instance_id, _ = await ids_of(bench)
    variables = {"id": instance_id}
    expected = await bench.run(StrawberryGraphQLCoreExecutionContext, WEB["InstanceDetail"], variables)
    assert expected[1]
    once = calls
    assert await bench.run(CompilingExecutor, WEB["InstanceDetail"], variables, 2) == expected
    assert calls == 3 * once


@pytest.mark.parametrize("name", ["FleetPage", "Deliveries", "VolumePage", "Volumes", "Quotas", "Tokens", "offers"])
async def test_no_item_of_a_list_is_left_to_the_library(bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch):
    left: set[str] = set()
    execute_fields = CompilingExecutor.execute_fields

    def noted(self: Any, parent_type: Any, *rest: Any) -> Any:
        if self.compiles_all:  # from the second execution on
            left.add(parent_type.name)
        return execute_fields(self, parent_type, *rest)

    instance_id, _ = await ids_of(bench)
    variables = {"FleetPage": {"direction": "DESC"}, "Deliveries": {"id": instance_id}}.get(name, {})
    monkeypatch.setattr(CompilingExecutor, "execute_fields", noted)
    _, errors = await bench.run(CompilingExecutor, OFFERS if name == "offers" else WEB[name], variables, 2)
    assert errors == []
    assert not {each for each in left if each != "Query" and not each.endswith("Connection")}


async def test_fields_of_one_loader_are_read_once(bench: Bench):
    with listening(bench.server) as statements:
        data, _ = await bench.run(CompilingExecutor, OFFERS, {})
        once = len(statements)
        await bench.run(StrawberryGraphQLCoreExecutionContext, OFFERS, {})
    assert len(data["market"]) == 300
    assert len(statements) == 2 * once


async def test_a_page_of_the_dashboard_takes_two_statements(bench: Bench):
    await bench.run(CompilingExecutor, WEB["FleetPage"], {"direction": "DESC"})
    with listening(bench.server) as statements:
        data, _ = await bench.run(CompilingExecutor, WEB["FleetPage"], {"direction": "DESC"}, 2)
    assert len(data["instances"]["nodes"]) == 30
    assert all(node["health"] == {"status": "HEALTHY"} for node in data["instances"]["nodes"])
    assert len(statements) == 4  # of two executions
