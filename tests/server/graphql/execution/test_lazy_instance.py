"""Rows read without the ORM show the same as rows read through it."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from schema.filters import InstanceOrderBy, OrderDirection
from schema.pagination import PageInfo, order_cursor
from schema.types import connection
from schema.types.connection import InstanceConnection, InstanceEdge
from schema.types.instance import Instance
from schema.types.lazy_instance import LazyInstance
from server.clock import now
from server.db import tables
from server.enums import InstanceStatus
from server.instances.queries import fast_page, instances
from server.instances.queries.instances import InstanceFilter, InstanceOrder
from tests.support.world import World

S = InstanceStatus
NOW = ("stale_for",)  # counted until the moment in which it is read


async def fill(world: World) -> None:
    moment = now()
    await world.put(S.READY, labels={"b": "2", "a": "1"}, price_per_hour_e5=35_000, region="AS-SGP-02", endpoints=[])
    await world.put(S.STARTING, novita_id="n1", novita_status="pulling", max_hourly_price_e5=1, observed_at=moment)
    await world.put(S.FAILED, failure_message="it broke", ports=[{"port": 80, "type": "http"}], billing_mode="spot")
    await world.put(
        S.RUNNING,
        novita_id="n2",
        endpoints=[{"port": 80, "type": "http", "address": "https://one"}],
        spot_reclaim_at=moment + timedelta(hours=1),
        estimated_ready_at=moment,
        command="run",
        template_id="7",
        env={"SECRET": "x"},
        webhook_url="https://receiver.example/hook",
    )
    await world.put(S.DELETED)


@pytest.mark.parametrize("order", InstanceOrder)
@pytest.mark.parametrize("descending", [True, False])
async def test_pages_have_the_same_rows_in_the_same_order(world: World, order: InstanceOrder, descending: bool):
    await fill(world)
    wanted: dict[str, Any] = {"project_id": world.caller.project_id, "order": order, "descending": descending}
    after = None
    for _ in range(4):
        async with world.database.read() as session:
            in_session = await instances.page_of_instances(
                session, wanted=InstanceFilter(), first=2, after=after, **wanted
            )
        rows = await fast_page.page(world.database, first=2, after=after, **wanted)
        assert rows == in_session
        if not rows:
            return
        after = (instances.place_of(rows[-1], order, descending=descending), rows[-1].id)
    raise AssertionError("the last page never came")


async def test_every_field_shows_the_same(world: World):
    await fill(world)
    rows = await fast_page.page(
        world.database,
        project_id=world.caller.project_id,
        first=10,
        after=None,
        order=InstanceOrder.NAME,
        descending=False,
    )
    async with world.database.read() as session:
        through_orm = {row.id: row for row in await session.scalars(select(tables.Instance))}
    assert len(rows) == 4
    for row in rows:
        shown, other = LazyInstance(row), Instance.of(through_orm[row.id])
        for field in fields(Instance):
            if field.init and field.name not in NOW:
                assert getattr(shown, field.name) == getattr(other, field.name), field.name
                assert type(getattr(shown, field.name)) is type(getattr(other, field.name)) or field.name == "row_id"


async def test_when_it_was_last_seen_counts_as_it_does_through_the_orm(world: World):
    long_ago = now() - timedelta(hours=1)
    row = await world.put(S.STARTING, novita_id="n1", observed_at=long_ago, status_since=long_ago)
    found = (await fast_page.by_ids(world.database, [row.id], project_id=world.caller.project_id))[row.id]
    for seen_at in (None, long_ago, now()):
        shown, other = LazyInstance(found, seen_at=seen_at), Instance.of(row, seen_at=seen_at)
        assert shown.stale == other.stale
        assert shown.stale == (seen_at is None or seen_at == long_ago)


async def test_rows_by_their_ids_are_those_of_the_project(world: World):
    await fill(world)
    other = await world.new_project("other")
    theirs = await world.put(S.READY, project_id=other)
    mine = await world.put(S.DELETED)
    found = await fast_page.by_ids(world.database, [theirs.id, mine.id], project_id=world.caller.project_id)
    assert list(found) == [mine.id]
    assert found[mine.id].status == "DELETED"


async def test_what_may_hold_secrets_is_not_read(world: World):
    await fill(world)
    rows = await fast_page.page(
        world.database,
        project_id=world.caller.project_id,
        first=10,
        after=None,
        order=InstanceOrder.CREATED_AT,
        descending=True,
    )
    for row in rows:
        assert not hasattr(row, "env")
        assert not hasattr(row, "webhook_url")


async def page(world: World, database: Any = None, **wanted: Any) -> Any:
    by_name: dict[str, Any] = {"first": 10, "after": None, "order": InstanceOrder.NAME, "descending": False}
    wanted = {"project_id": world.caller.project_id} | by_name | wanted
    return await fast_page.page(database or world.database, **wanted)


async def rename(world: World, id: Any, name: str) -> None:
    pool = world.database.raw
    await pool.execute("UPDATE instance SET name = $2 WHERE id = $1", id, name)


async def test_a_row_that_did_not_change_is_read_once_and_one_that_did_is_read_again(world: World):
    await fill(world)
    before = await page(world)
    again = await page(world)
    assert all(one is other for one, other in zip(before, again, strict=True))
    await rename(world, before[1].id, before[1].name + "-new")
    after = await page(world)
    assert after[1].name == before[1].name + "-new"
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, True, True]


async def test_what_is_kept_for_one_project_is_not_shown_to_another(world: World):
    await fill(world)
    other = await world.new_project("other")
    theirs = await world.put(S.READY, project_id=other)
    assert [row.id for row in await page(world, project_id=other)] == [theirs.id]
    assert theirs.id not in [row.id for row in await page(world)]
    pool = world.database.raw
    await pool.execute("UPDATE instance SET project_id = $2 WHERE id = $1", theirs.id, world.caller.project_id)
    assert await page(world, project_id=other) == []


class Meddled:
    """A database in which something happens after the first statement."""

    def __init__(self, world: World, meddle: Any) -> None:
        self._world = world
        self._meddle = meddle

    has_replica = False

    @property
    def raw(self) -> Any:
        return self

    def shared(self, kind: type[Any]) -> Any:
        return kind()

    async def fetch(self, *given: Any) -> Any:
        return await self._then_meddle(self._world.database.raw.fetch(*given))

    async def fetchval(self, *given: Any) -> Any:
        return await self._then_meddle(self._world.database.raw.fetchval(*given))

    async def _then_meddle(self, asked: Any) -> Any:
        answer = await asked
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            await meddle()
        return answer


async def test_a_page_is_of_one_moment_even_if_a_row_changes_while_it_is_read(world: World):
    await fill(world)
    first = (await page(world))[0]

    async def goes_to_the_end() -> None:
        await rename(world, first.id, "zzz")

    rows = await page(world, Meddled(world, goes_to_the_end))
    assert [row.name for row in rows] == sorted(row.name for row in rows)
    assert rows[-1].id == first.id

    async def goes_away() -> None:
        pool = world.database.raw
        await pool.execute(
            "UPDATE instance SET status = 'DELETED', deleted_at = now(), failure_code = NULL, failure_message = NULL"
            " WHERE id = $1",
            first.id,
        )

    rows = await page(world, Meddled(world, goes_away))
    assert first.id not in [row.id for row in rows]


async def test_only_so_many_rows_are_kept(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fast_page, "MAX_ROWS", 2)
    await fill(world)
    cache = fast_page.RowCache()
    pool = world.database.raw
    for record in await pool.fetch(fast_page.BY_IDS, [row.id for row in await page(world)], world.caller.project_id):
        row = cache.add(record)
        assert row.id == record["id"]
        assert cache.find(record["row_version"]) is row
    assert len(cache) == 2


@pytest.mark.parametrize(
    "wanted",
    [
        InstanceFilter(statuses=(S.READY, S.FAILED)),
        InstanceFilter(statuses=(S.DELETED,)),
        InstanceFilter(labels=(("a", "1"), ("b", "2"))),
        InstanceFilter(regions=("AS-SGP-02",), min_price_e5=1),
        InstanceFilter(is_stale=True),
        InstanceFilter(is_stale=False),
    ],
)
async def test_a_filtered_page_has_the_same_rows_as_one_read_in_a_session(world: World, wanted: InstanceFilter):
    await fill(world)
    long_ago = now() - timedelta(hours=1)
    await world.put(S.STARTING, novita_id="n9", observed_at=long_ago, status_since=long_ago)
    async with world.database.read() as session:
        expected = await instances.page_of_instances(
            session,
            project_id=world.caller.project_id,
            wanted=wanted,
            first=10,
            order=InstanceOrder.NAME,
            descending=False,
        )
    assert expected
    assert await page(world, wanted=wanted) == expected


async def test_a_stale_filter_is_compared_with_the_time_of_each_request(world: World):
    moment = now()
    row = await world.put(S.STARTING, novita_id="n1", observed_at=moment, status_since=moment)
    stale = InstanceFilter(is_stale=True)
    assert await page(world, wanted=stale) == []
    pool = world.database.raw
    await pool.execute(
        "UPDATE instance SET observed_at = $2, status_since = $2 WHERE id = $1", row.id, moment - timedelta(hours=1)
    )
    assert [each.id for each in await page(world, wanted=stale)] == [row.id]


@pytest.mark.parametrize("size", [2, 4, 10])
@pytest.mark.parametrize("after", [None, "a cursor"])
async def test_a_page_has_the_cursors_of_its_rows(world: World, size: int, after: str | None):
    await fill(world)
    rows = (await page(world))[: size + 1]
    order = InstanceOrderBy(field=InstanceOrder.NAME, direction=OrderDirection.ASC)
    nodes: list[Any] = [LazyInstance(row) for row in rows[:size]]
    made: Any = InstanceConnection(wanted=InstanceFilter(), rows=rows, order=order, after=after, nodes=nodes)
    edges = [
        InstanceEdge(cursor=order_cursor(order.name, row.name, row.id), node=node)
        for row, node in zip(rows, nodes, strict=False)
    ]
    assert connection._edges(made) == edges
    assert connection._page_info(made) == PageInfo.of(edges, has_more=len(rows) > size, after=after)
