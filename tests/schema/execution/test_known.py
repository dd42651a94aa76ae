"""What was shown of a row before is shown again as the same bytes, as long as nothing else has a say in it."""

from enum import StrEnum
from typing import Any

import orjson
import pytest
from graphql import GraphQLList, GraphQLNonNull, parse

from schema.execution.executor import CompilingExecutor
from schema.execution.known import MOST_SHOWN, Known, KnownList, keep, written
from schema.execution.light import LightInstance
from schema.execution.pages import LightConnection
from schema.filters import InstanceOrderBy, OrderDirection
from schema.live.results import encoded
from schema.paging import order_cursor
from schema.types.connection import InstanceConnection, InstanceEdge
from schema.types.instance import Instance
from schema.types.page import PageInfo
from server.instances import light, reads
from server.instances.reads import InstanceOrder
from tests.schema.execution.documents import holder, types
from tests.schema.execution.test_light import fill, page, rename
from tests.schema.execution.test_selections import answer, operation_of
from tests.world import World


class Word(StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    "beside", [1, "é", "\ud800", Word.ONE, None, {"a": [1.5, True]}], ids=["int", "str", "half", "enum", "null", "dict"]
)
def test_an_answer_has_the_same_bytes_with_and_without_known_parts(beside: Any):
    plain = {"name": 'a "b" é', "at": None, "price": {"amountMicros": "350000"}}
    known = keep({}, object(), plain)
    for _ in range(2):
        raw = written({"data": {"nodes": [known, known], "beside": beside}})
        assert raw == encoded({"data": {"nodes": [plain, plain], "beside": beside}})


def test_few_selections_of_a_row_are_known_at_a_time():
    shown: dict[object, Any] = {}
    for _ in range(MOST_SHOWN * 3):
        keep(shown, object(), {})
        assert len(shown) <= MOST_SHOWN


async def told(pages: Any, fields: str) -> list[Any]:
    """The answers of one document that comes again and again, and finds these."""
    type = GraphQLNonNull(GraphQLList(GraphQLNonNull({each.name: each for each in types()}["Instance"])))
    document = parse(f"{{ instances {{ {fields} }} }}")
    operation = operation_of(document)
    found: list[Any] = []
    for each in pages:
        schema = holder({"instances": (type, each)})
        data, errors = await answer(CompilingExecutor, schema, document, operation)
        assert errors == []
        found.append(data["instances"])
    return found


def twice(rows: Any) -> list[list[LightInstance]]:
    return [[LightInstance(row) for row in rows] for _ in range(2)]


async def nodes_of(world: World, size: int) -> Any:
    rows = await page(world, first=size + 1)
    order = InstanceOrderBy(field=InstanceOrder.NAME, direction=OrderDirection.ASC)
    return LightConnection(rows, size, wanted=reads.InstanceFilter(), order=order, after=None).nodes


async def test_a_row_that_is_shown_again_is_not_made_again(world: World):
    await fill(world)
    rows = await page(world)
    first, second = await told(twice(rows), "id name pricePerHour { amountMicros } ports { port } actions __typename")
    assert all(one is other and type(one) is Known for one, other in zip(first, second, strict=True))
    assert [each["name"] for each in first] == [row.name for row in rows]
    assert orjson.loads(written({"nodes": first})) == {"nodes": first}


@pytest.mark.parametrize("field", ["stale", "staleFor", "... on Instance { stale }", "old: stale"])
async def test_what_depends_on_the_time_is_made_anew(world: World, field: str):
    await fill(world)
    for found in await told(twice(await page(world)), f"id name {field}"):
        assert not any(type(each) is Known for each in found)


async def test_a_page_that_is_shown_again_is_not_made_again(world: World):
    await fill(world)
    fields = "id name status pricePerHour { amountMicros }"
    first, second, shorter, longer = await told([await nodes_of(world, size) for size in (4, 4, 3, 50)], fields)
    assert first is second is longer
    assert type(first) is KnownList
    assert shorter == first[:3]  # of the same rows, one of them only tells that there is more
    assert written({"nodes": first, "again": first}) == encoded({"nodes": list(first), "again": list(first)})


async def test_a_page_on_which_a_row_changed_is_made_anew(world: World):
    await fill(world)
    before = await nodes_of(world, 4)
    await rename(world, before[1].row_id, before[1].name + "-new")
    first, second = await told([before, await nodes_of(world, 4)], "id name")
    assert [one == other for one, other in zip(first, second, strict=True)] == [True, False, True, True]
    assert second[1]["name"] == first[1]["name"] + "-new"


async def test_a_page_with_what_depends_on_the_time_is_made_anew(world: World):
    await fill(world)
    first, second = await told([await nodes_of(world, 4) for _ in range(2)], "id stale")
    assert first == second
    assert type(first) is list


@pytest.mark.parametrize("size", [2, 4, 10])
@pytest.mark.parametrize("after", [None, "a cursor"])
async def test_a_page_shows_the_same_as_one_that_is_made_at_once(world: World, size: int, after: str | None):
    await fill(world)
    rows = (await page(world))[: size + 1]
    order = InstanceOrderBy(field=InstanceOrder.NAME, direction=OrderDirection.ASC)
    made = LightConnection(rows, size, wanted=reads.InstanceFilter(), order=order, after=after)
    edges = [
        InstanceEdge(cursor=order_cursor(order.name, row.name, row.id), node=Instance.of(row)) for row in rows[:size]
    ]
    assert [each.cursor for each in made.edges] == [each.cursor for each in edges]
    assert [each.node.id for each in made.edges] == [each.node.id for each in edges]
    assert [each.node for each in made.edges] == made.nodes
    assert made.page_info == PageInfo.of(edges, has_more=len(rows) > size, after=after)
    assert isinstance(made, InstanceConnection)
    assert isinstance(rows[0], light.Row)
