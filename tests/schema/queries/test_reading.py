"""Pages without gaps or duplicates, counts on demand, and a constant number of statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from server.clock import now
from server.enums import InstanceStatus, OperationKind
from server.instances import operations
from tests.support.api import Api

PAGE = """
    query ($first: Int, $after: String, $filter: InstanceFilter) {
      instances(first: $first, after: $after, filter: $filter) {
        totalCount nodes { name } edges { cursor node { name } } pageInfo { hasNextPage endCursor }
      }
    }
"""


async def test_twenty_five_rows_are_three_pages_newest_first(api: Api):
    began = now()
    for number in range(25):
        # Groups of five share a moment, so that only the id can tell them apart.
        await api.world.put(name=f"n{number:02}", created_at=began + timedelta(seconds=number // 5))

    pages: list[list[str]] = []
    after: str | None = None
    while True:
        page = (await api.ask(PAGE, first=10, after=after)).data["instances"]
        assert page["totalCount"] == 25
        assert [edge["node"] for edge in page["edges"]] == page["nodes"]
        assert page["pageInfo"]["endCursor"] == page["edges"][-1]["cursor"]
        pages.append([node["name"] for node in page["nodes"]])
        if not page["pageInfo"]["hasNextPage"]:
            break
        after = page["pageInfo"]["endCursor"]

    assert [len(page) for page in pages] == [10, 10, 5]
    names = [name for page in pages for name in page]
    assert sorted(names) == [f"n{number:02}" for number in range(25)]
    assert [name[1:] for name in names[:5]] == ["24", "23", "22", "21", "20"]


async def test_a_page_begun_before_new_rows_came_goes_on_without_a_gap_or_a_double(api: Api):
    began = now()
    for number in range(4):
        await api.world.put(name=f"old{number}", created_at=began - timedelta(minutes=number))
    first = (await api.ask(PAGE, first=2)).data["instances"]
    await api.world.put(name="new", created_at=began + timedelta(minutes=1))

    second = (await api.ask(PAGE, first=2, after=first["pageInfo"]["endCursor"])).data["instances"]

    assert [each["name"] for each in first["nodes"] + second["nodes"]] == ["old0", "old1", "old2", "old3"]
    assert second["pageInfo"]["hasNextPage"] is False


async def test_nothing_is_an_empty_page(api: Api):
    assert (await api.ask(PAGE)).data["instances"] == {
        "totalCount": 0,
        "nodes": [],
        "edges": [],
        "pageInfo": {"hasNextPage": False, "endCursor": None},
    }


async def test_deleted_ones_are_shown_only_if_asked_for(api: Api):
    await api.world.put(name="alive")
    await api.world.put(InstanceStatus.DELETED, name="gone")

    async def names(wanted: dict[str, Any] | None) -> list[str]:
        page = (await api.ask(PAGE, filter=wanted)).data["instances"]
        assert page["totalCount"] == len(page["nodes"])
        return [node["name"] for node in page["nodes"]]

    assert await names(None) == ["alive"]
    assert await names({"statuses": ["DELETED"]}) == ["gone"]
    assert sorted(await names({"statuses": ["DELETED", "READY"]})) == ["alive", "gone"]
    assert await names({"statuses": ["FAILED"]}) == []


@pytest.mark.parametrize("first", [0, -1, 101])
async def test_a_page_has_one_to_a_hundred_rows(api: Api, first: int):
    error = (await api.ask(PAGE, first=first)).error
    assert (error["code"], error["retryable"], error["message"]) == (
        "INVALID_PAGE_SIZE",
        False,
        "`first` must be 1 to 100.",
    )


@pytest.mark.parametrize("after", ["", "nonsense", "AAAA", "ü", "_" * 32, "A" * 32])
async def test_a_cursor_that_is_not_ours_is_refused_or_leads_nowhere(api: Api, after: str):
    answer = await api.ask(PAGE, after=after)
    if "errors" in answer.body:
        assert (answer.error["code"], answer.error["retryable"]) == ("INVALID_CURSOR", False)
    else:
        assert answer.data["instances"]["nodes"] == []


async def test_every_field_of_an_instance_can_be_read(api: Api):
    env, labels = [{"key": "A", "value": "1"}], [{"key": "l", "value": "v"}]
    created = (await api.create(ports=[{"port": 80}], env=env, labels=labels))["instance"]
    document = """
        query ($id: ID!) { instance(id: $id) {
          id name status version productName gpuCount rootfsSizeGb billing regions image command
          ports { port type } labels { key value } env { key value } endpoints { port type address }
          maxHourlyPrice { amountMicros currency } pricePerHour { amountMicros currency } failure { code message }
          novitaId novitaStatus region productId billingMode createdAt updatedAt statusSince estimatedReadyAt
          runningAt readyAt deletedAt observedAt spotReclaimAt
        } }
    """
    found = (await api.ask(document, id=created["id"])).data["instance"]
    assert (found["name"], found["status"], found["version"]) == ("web", "CREATING", 1)
    assert (found["env"], found["labels"]) == (env, labels)
    assert (found["novitaId"], found["pricePerHour"], found["failure"]) == (None, None, None)
    assert found["createdAt"].endswith("+00:00")


@contextmanager
def statements(api: Api) -> Iterator[list[str]]:
    """Every statement that the serving process sends meanwhile."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    engine = api.server.runtime.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def test_the_number_of_statements_does_not_grow_with_the_rows(api: Api):
    document = """
        query { instances(first: 100) { totalCount nodes {
          name env { key value } openOperation { status attempts { region } instance { name } }
        } } }
    """

    async def add(count: int) -> None:
        for _ in range(count):
            instance = await api.world.put(env={"A": "1"})
            async with api.world.database.write() as session:
                await operations.begin(session, instance, OperationKind.STOP, by=None)

    async def counted() -> int:
        with statements(api) as sent:
            nodes = (await api.ask(document)).data["instances"]["nodes"]
        assert all(node["openOperation"]["instance"]["name"] == node["name"] for node in nodes)
        return len(sent)

    await add(2)
    await counted()  # the first request of a token also notes that it was used
    few = await counted()
    await add(18)
    assert await counted() == few
    assert few <= 7


async def test_the_count_is_made_only_if_asked_for(api: Api):
    await api.world.put()
    with statements(api) as sent:
        await api.ask("{ instances { nodes { name } } }")
    assert [each for each in sent if "count(" in each.lower()] == []
