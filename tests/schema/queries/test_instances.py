"""Pages of instances and operations: filters, orders and stable cursors."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from schema import ids
from server.clock import now
from server.enums import InstanceStatus
from tests.support.api import Api

LIST = """
query ($filter: InstanceFilter, $order: InstanceOrderBy, $first: Int!, $after: String) {
  instances(filter: $filter, orderBy: $order, first: $first, after: $after) {
    totalCount nodes { name } pageInfo { hasNextPage endCursor }
  }
}"""


async def put(api: Api, name: str, status: InstanceStatus = InstanceStatus.READY, **fields: Any) -> str:
    row = await api.world.put(status, project_id=api.caller.project_id, name=name, **fields)
    return ids.format_id(ids.INSTANCE, row.id)


async def names(api: Api, filter: dict[str, Any] | None = None, order: dict[str, Any] | None = None) -> list[str]:
    """Page by page, two at a time."""
    found: list[str] = []
    after = None
    while True:
        answer = await api.ask(LIST, filter=filter, order=order, first=2, after=after)
        page = answer.data["instances"]
        found += [node["name"] for node in page["nodes"]]
        if not page["pageInfo"]["hasNextPage"]:
            assert page["totalCount"] == len(found)
            return found
        after = page["pageInfo"]["endCursor"]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, {"alpha", "beta", "gam%ma"}),
        ({"statuses": ["DELETED"]}, {"gone"}),
        ({"statuses": ["EXITED", "READY"]}, {"alpha", "beta"}),
        ({"nameContains": "AL"}, {"alpha"}),
        ({"nameContains": "%"}, {"gam%ma"}),
        ({"labels": [{"key": "team", "value": "a"}]}, {"alpha", "beta"}),
        ({"labels": [{"key": "team", "value": "a"}, {"key": "env", "value": "dev"}]}, {"beta"}),
        ({"regions": ["CN-HK-01"]}, {"beta"}),
        ({"productNames": ["H100", "nothing"]}, {"gam%ma"}),
        ({"nameContains": "a", "statuses": ["FAILED"], "regions": ["CN-HK-01"]}, set()),
    ],
)
async def test_a_filter_finds_what_it_says(api: Api, filter: dict[str, Any], expected: set[str]):
    await put(api, "alpha", labels={"team": "a"}, region="AS-SGP-02")
    await put(api, "beta", InstanceStatus.EXITED, labels={"team": "a", "env": "dev"}, region="CN-HK-01")
    await put(api, "gam%ma", InstanceStatus.FAILED, product_name="H100")
    await put(api, "gone", InstanceStatus.DELETED)

    assert set(await names(api, filter)) == expected


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"nameStartsWith": "AL"}, {"alpha"}),
        ({"nameStartsWith": "gam%"}, {"gam%ma"}),
        ({"nameStartsWith": "%"}, set()),
        ({"labelFilters": [{"exists": "team"}]}, {"alpha", "beta"}),
        ({"labelFilters": [{"missing": "team"}]}, {"gam%ma", "moving"}),
        ({"labelFilters": [{"equals": {"key": "team", "value": "b"}}]}, {"beta"}),
        ({"labelFilters": [{"in": {"key": "team", "values": ["a", "x"]}}]}, {"alpha"}),
        ({"labelFilters": [{"notIn": {"key": "team", "values": ["a", "x"]}}]}, {"beta", "gam%ma", "moving"}),
        ({"labelFilters": [{"exists": "team"}, {"missing": "env"}]}, {"alpha"}),
        ({"health": ["HEALTHY"]}, {"alpha"}),
        ({"health": ["PARTIAL", "UNHEALTHY"]}, {"beta"}),
        ({"isDegraded": True}, {"alpha"}),
        ({"isDegraded": False}, {"beta", "gam%ma", "moving"}),
        ({"billings": ["ON_DEMAND"]}, {"beta"}),
        ({"billingModes": ["SPOT"]}, {"alpha"}),
        ({"billingModes": ["OTHER"]}, set()),
        ({"minPricePerHour": {"amountMicros": 350_000}}, {"alpha", "beta"}),
        ({"minPricePerHour": {"amountMicros": 350_001}}, {"beta"}),
        ({"maxPricePerHour": {"amountMicros": 350_009}}, {"alpha", "gam%ma", "moving"}),
        ({"maxPricePerHour": {"amountMicros": 0}}, {"gam%ma", "moving"}),
        ({"stale": True}, {"moving"}),
        ({"stale": False}, {"alpha", "beta", "gam%ma"}),
        ({"stale": False, "statuses": ["DELETED"]}, {"gone"}),
    ],
)
async def test_a_fleet_of_thousands_is_cut_in_any_way(api: Api, filter: dict[str, Any], expected: set[str]):
    await put(
        api,
        "alpha",
        labels={"team": "a"},
        health="HEALTHY",
        billing_mode="spot",
        price_per_hour_e5=35_000,
        degraded_since=now(),
    )
    await put(
        api,
        "beta",
        InstanceStatus.EXITED,
        labels={"team": "b", "env": "dev"},
        degraded_since=now(),  # as a process of an older release leaves it
        health="PARTIAL",
        billing="ON_DEMAND",
        billing_mode="onDemand",
        price_per_hour_e5=70_000,
    )
    await put(api, "gam%ma", InstanceStatus.FAILED)
    past = now() - timedelta(minutes=5)
    await put(api, "moving", InstanceStatus.STARTING, novita_id="m", status_since=past, observed_at=past)
    await put(api, "gone", InstanceStatus.DELETED)

    assert set(await names(api, filter)) == expected


async def test_ready_instance_shows_since_when_it_is_degraded(api: Api):
    moment = now()
    down, up = await put(api, "down", degraded_since=moment), await put(api, "up")
    stopped = await put(api, "stopped", InstanceStatus.EXITED, degraded_since=moment)
    document = "query ($ids: [ID!]!) { instances(filter: {ids: $ids}) { nodes { name isDegraded degradedSince } } }"

    nodes = (await api.ask(document, ids=[down, up, stopped])).data["instances"]["nodes"]
    assert {each["name"]: each["isDegraded"] for each in nodes} == {"down": True, "up": False, "stopped": False}
    since = {each["name"]: each["degradedSince"] for each in nodes}
    assert datetime.fromisoformat(since["down"]) == moment
    assert (since["up"], since["stopped"]) == (None, None)


async def test_some_are_asked_for_by_their_ids(api: Api):
    one, two = await put(api, "one"), await put(api, "two")
    await put(api, "three")
    stranger, caller = await api.world.new_token("another")
    theirs = await api.world.put(project_id=caller.project_id)

    wanted = [one, two, ids.format_id(ids.INSTANCE, theirs.id), "nonsense", one]
    assert set(await names(api, {"ids": wanted})) == {"one", "two"}
    assert await names(api, {"ids": []}) == []
    assert stranger


@pytest.mark.parametrize(
    "filter",
    [
        {"ids": ["x"] * 101},
        {"labelFilters": [{"exists": "a"}] * 21},
        {"labelFilters": [{"in": {"key": "a", "values": []}}]},
        {"labelFilters": [{"in": {"key": "a", "values": ["b"] * 101}}]},
        {"labelFilters": [{"exists": "a\u0000"}]},
        {"nameStartsWith": "\u0000"},
        {"minPricePerHour": {"amountMicros": 1, "currency": "EUR"}},
    ],
)
async def test_a_filter_that_asks_too_much_is_refused(api: Api, filter: dict[str, Any]):
    assert (await api.ask(LIST, filter=filter, first=1)).error["code"] == "INVALID_FILTER"


async def test_times_bound_a_list(api: Api):
    moment = now()
    for number in range(4):
        await put(api, f"n{number}", created_at=moment + timedelta(hours=number))

    after = {"createdAfter": moment.isoformat(), "createdBefore": (moment + timedelta(hours=3)).isoformat()}
    assert await names(api, after) == ["n2", "n1"]
    naive = await api.ask(LIST, filter={"createdAfter": "2026-01-01T00:00:00"}, first=1)
    assert naive.error["code"] == "BAD_REQUEST"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (None, ["c", "a", "b", "d"]),
        ({"field": "CREATED_AT", "direction": "ASC"}, ["d", "b", "a", "c"]),
        ({"field": "NAME", "direction": "ASC"}, ["a", "b", "c", "d"]),
        ({"field": "NAME"}, ["d", "c", "b", "a"]),
        ({"field": "STATUS", "direction": "ASC"}, ["d", "c", "b", "a"]),
        ({"field": "STATUS", "direction": "DESC"}, ["a", "b", "c", "d"]),
        ({"field": "STATUS_SINCE", "direction": "ASC"}, ["c", "a", "b", "d"]),
        ({"field": "STATUS_SINCE"}, ["d", "b", "a", "c"]),
        ({"field": "PRICE", "direction": "ASC"}, ["d", "a", "c", "b"]),
        ({"field": "PRICE"}, ["b", "c", "a", "d"]),
    ],
)
async def test_every_order_is_kept_across_pages(api: Api, order: dict[str, Any] | None, expected: list[str]):
    moment = now()
    for hours, (name, status, price) in enumerate(
        [
            ("d", InstanceStatus.EXITED, None),
            ("b", InstanceStatus.READY, 9),
            ("a", InstanceStatus.RUNNING, 7),
            ("c", InstanceStatus.FAILED, 8),
        ]
    ):
        since = moment - timedelta(hours=hours)
        made = moment + timedelta(hours=hours)
        await put(api, name, status, created_at=made, status_since=since, price_per_hour_e5=price)

    assert await names(api, order=order) == expected


async def test_a_cursor_of_another_order_or_with_an_unknown_id_is_refused(api: Api):
    for name in ("a", "b"):
        await put(api, name)
    cursor = (await api.ask(LIST, first=1)).data["instances"]["pageInfo"]["endCursor"]

    for after, order in ((cursor, {"field": "NAME"}), ("nonsense", None), ("W10=", None), ("", None)):
        answer = await api.ask(LIST, first=1, after=after, order=order)
        assert answer.error["code"] == "INVALID_CURSOR"


async def test_operations_are_listed_by_instance_kind_and_status(api: Api):
    one, two = await put(api, "one", novita_id="l1"), await put(api, "two", novita_id="l2")
    for id in (one, two):
        for label in ("x", "y", "z"):
            await api.ask(
                """mutation ($id: ID!, $label: String!) { updateInstance(
                   input: {id: $id, labels: [{key: "k", value: $label}]}) { errors { code } } }""",
                id=id,
                label=label,
            )
    await api.ask("mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }", id=one)
    document = """query ($filter: OperationFilter, $first: Int!, $after: String) {
      operations(filter: $filter, first: $first, after: $after) {
        totalCount edges { cursor } nodes { kind status instance { name } } pageInfo { hasNextPage endCursor } } }"""

    async def listed(first: int = 50, after: str | None = None, **filter: Any) -> dict[str, Any]:
        return (await api.ask(document, filter=filter, first=first, after=after)).data["operations"]

    everything = await listed()
    assert (everything["totalCount"], everything["nodes"][0]["kind"]) == (7, "STOP")
    assert {node["instance"]["name"] for node in (await listed(instanceId=two))["nodes"]} == {"two"}
    assert (await listed(kinds=["STOP"]))["totalCount"] == 1
    assert (await listed(statuses=["QUEUED", "RUNNING"]))["nodes"] == [everything["nodes"][0]]
    assert (await listed(instanceId="inst_nobody"))["nodes"] == []
    pages = await listed(first=4)
    rest = await listed(first=4, after=pages["pageInfo"]["endCursor"])
    assert pages["nodes"] + rest["nodes"] == everything["nodes"]
    assert (pages["pageInfo"]["hasNextPage"], rest["pageInfo"]["hasNextPage"]) == (True, False)


async def test_operations_of_more_instances_cost_no_more_queries(api: Api):
    for number in range(4):
        id = await put(api, f"i{number}", novita_id=f"m{number}")
        for label in ("x", "y"):
            await api.ask(
                """mutation ($id: ID!, $label: String!) { updateInstance(
                   input: {id: $id, labels: [{key: "k", value: $label}]}) { errors { code } } }""",
                id=id,
                label=label,
            )
    document = """query ($first: Int!) { instances(first: $first, orderBy: {field: NAME, direction: ASC}) {
        nodes { name operations(first: 1) { kind } } } }"""

    few, of_few = await _counted(api, document, first=1)
    many, of_many = await _counted(api, document, first=4)

    assert [(node["name"], len(node["operations"])) for node in many["instances"]["nodes"]] == [
        ("i0", 1),
        ("i1", 1),
        ("i2", 1),
        ("i3", 1),
    ]
    assert len(few["instances"]["nodes"]) == 1
    assert of_few == of_many


async def _counted(api: Api, document: str, **variables: Any) -> tuple[dict[str, Any], int]:
    """The answer, and how many statements it took."""
    engine = api.server.runtime.database.engine.sync_engine
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", count)
    try:
        return (await api.ask(document, **variables)).data, len(statements)
    finally:
        event.remove(engine, "before_cursor_execute", count)


async def test_the_first_page_steps_over_no_deleted_ones(api: Api):
    await api.world.execute(
        """
        INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image,
                              created_at, deleted_at)
        SELECT gen_random_uuid(), $1, 'n' || n, CASE WHEN n % 100 = 0 THEN 'EXITED' ELSE 'DELETED' END, 'p', 1, 60,
               'SPOT', 'i', now() - n * interval '1 second', CASE WHEN n % 100 = 0 THEN NULL ELSE now() END
        FROM generate_series(1, 20000) AS n
        """,
        api.caller.project_id,
    )
    await api.world.execute("ANALYZE instance")

    plan = "\n".join(
        row[0]
        for row in await api.world.rows(
            """EXPLAIN SELECT * FROM instance WHERE project_id = $1 AND instance.status <> 'DELETED'
               ORDER BY created_at DESC, id DESC LIMIT 51""",
            api.caller.project_id,
        )
    )

    assert "instance_living_by_project" in plan
    assert len(await names(api, {"nameContains": "n20000"})) == 1
