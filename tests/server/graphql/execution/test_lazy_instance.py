"""Rows read without the ORM show the same as rows read through it."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from strawberry.utils.str_converters import to_camel_case

from schema.filters import InstanceOrderBy, OrderDirection
from schema.lazy_instance import LazyInstance, columns_for
from schema.pagination import PageInfo, order_cursor
from schema.types import connection
from schema.types.connection import InstanceConnection, InstanceEdge
from schema.types.instance import Instance
from server.auth.token_limits import TokenLimits
from server.clock import new_id, now
from server.db import tables
from server.enums import Billing, InstanceStatus
from server.instances.queries import fast_page, instances
from server.instances.queries.instances import InstanceFilter, InstanceOrder
from tests.support.pages import page_of_instances
from tests.support.world import World

S = InstanceStatus
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
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
            in_session = await page_of_instances(session, wanted=InstanceFilter(), first=2, after=after, **wanted)
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
    found = (await fast_page.by_ids(world.database, [row.id], by=world.caller))[row.id]
    for seen_at in (None, long_ago, now()):
        shown, other = LazyInstance(found, seen_at=seen_at), Instance.of(row, seen_at=seen_at)
        assert shown.stale == other.stale
        assert shown.stale == (seen_at is None or seen_at == long_ago)


async def test_rows_by_their_ids_are_those_of_the_project(world: World):
    await fill(world)
    other = await world.new_project("other")
    theirs = await world.put(S.READY, project_id=other)
    mine = await world.put(S.DELETED)
    found = await fast_page.by_ids(world.database, [theirs.id, mine.id], by=world.caller)
    assert list(found) == [mine.id]
    assert found[mine.id].status == "DELETED"


async def test_an_instance_is_found_as_through_the_orm(world: World):
    other = await world.new_project("other")
    deleted = await world.put(S.DELETED, name="one")
    mine = await world.put(S.READY, name="one", owner_token_id=world.caller.token_id)
    theirs = await world.put(S.READY, name="two", project_id=other)
    own = replace(world.caller, limits=TokenLimits(own_instances_only=True))
    another = replace(own, token_id=new_id())
    for by in (world.caller, own, another):
        async with world.database.read() as session:
            for name in ("one", "two", "three"):
                row = await instances.find_instance_by_name(session, name, by=by)
                found = await fast_page.by_name(world.database, name, by=by)
                assert (None if found is None else found.id) == (None if row is None else row.id)
            for each in (deleted, mine, theirs):
                row = await instances.get_instance(session, each.id, by=by)
                found = await fast_page.read_in(session, each.id, by=by)
                assert (None if found is None else found.id) == (None if row is None else row.id)
    part = await fast_page.by_name(world.database, "one", by=own, columns={"image"})
    assert part is not None
    assert part._asdict() == {"id": mine.id, "image": mine.image}


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


async def test_a_page_shows_only_instances_of_the_project(world: World):
    await fill(world)
    other = await world.new_project("other")
    theirs = await world.put(S.READY, project_id=other)
    assert [row.id for row in await page(world, project_id=other)] == [theirs.id]
    assert theirs.id not in [row.id for row in await page(world)]
    pool = world.database.raw
    await pool.execute("UPDATE instance SET project_id = $2 WHERE id = $1", theirs.id, world.caller.project_id)
    assert await page(world, project_id=other) == []


async def test_a_page_reads_only_the_columns_that_the_selected_fields_need(world: World):
    await fill(world)
    complete = [LazyInstance(row) for row in await page(world)]
    for field in fields(Instance):
        if not field.init or field.name in NOW:
            continue
        rows = await page(world, columns=columns_for(frozenset({to_camel_case(field.name)})))
        assert len(rows[0]._fields) < len(tables.InstanceRow._fields) / 2
        shown = [getattr(LazyInstance(row), field.name) for row in rows]
        assert shown == [getattr(each, field.name) for each in complete], field.name


async def test_filters_of_one_shape_share_a_statement(world: World):
    await fill(world)
    fast_page._statement.cache_clear()
    for region in ("AS-SGP-02", "none"):
        for statuses in ((S.READY,), (S.READY, S.FAILED)):
            rows = await page(world, wanted=InstanceFilter(regions=(region,), statuses=statuses))
            assert len(rows) == (region == "AS-SGP-02")
    assert fast_page._statement.cache_info().misses == 1
    assert await page(world, wanted=InstanceFilter(ids=())) == []


@pytest.mark.parametrize(
    "wanted",
    [
        InstanceFilter(statuses=(S.READY, S.FAILED)),
        InstanceFilter(statuses=(S.DELETED,)),
        InstanceFilter(labels=(("a", "1"), ("b", "2"))),
        InstanceFilter(regions=("AS-SGP-02",), min_price_e5=1),
        InstanceFilter(max_price_e5=35_000, billings=tuple(Billing), created_after=LONG_AGO),
        InstanceFilter(product_names=("RTX 4090 24GB", "other"), created_before=LONG_AGO + timedelta(days=40_000)),
        InstanceFilter(billing_modes=("spot",)),
        InstanceFilter(is_stale=True),
        InstanceFilter(is_stale=False),
    ],
)
async def test_a_filtered_page_has_the_same_rows_as_one_read_in_a_session(world: World, wanted: InstanceFilter):
    await fill(world)
    long_ago = now() - timedelta(hours=1)
    await world.put(S.STARTING, novita_id="n9", observed_at=long_ago, status_since=long_ago)
    async with world.database.read() as session:
        expected = await page_of_instances(
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
