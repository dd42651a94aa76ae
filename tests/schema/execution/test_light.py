"""What is read past the ORM shows the same as what is read through it."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from schema.execution.light import LightInstance
from schema.types.instance import Instance
from server.clock import now
from server.instances import light, reads
from server.instances.reads import InstanceFilter, InstanceOrder
from server.words import InstanceStatus
from tests.world import World

S = InstanceStatus
NOW = ("stale_for",)  # counted until the moment in which it is shown


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


@pytest.mark.parametrize("order", [each for each in InstanceOrder if light.can_sort(each)])
@pytest.mark.parametrize("descending", [True, False])
async def test_pages_have_the_same_rows_in_the_same_order(world: World, order: InstanceOrder, descending: bool):
    await fill(world)
    wanted: dict[str, Any] = {"project_id": world.caller.project_id, "order": order, "descending": descending}
    after = None
    for _ in range(4):
        async with world.database.read() as session:
            by_orm = await reads.page_of_instances(session, wanted=InstanceFilter(), first=2, after=after, **wanted)
        by_hand = await light.page(world.database, first=2, after=after, **wanted)
        assert [row.id for row in by_hand] == [row.id for row in by_orm]
        if not by_hand:
            return
        after = (reads.place_of(by_hand[-1], order), by_hand[-1].id)
    raise AssertionError("the last page never came")


async def test_every_field_shows_the_same(world: World):
    await fill(world)
    rows = await light.page(
        world.database,
        project_id=world.caller.project_id,
        first=10,
        after=None,
        order=InstanceOrder.NAME,
        descending=False,
    )
    async with world.database.read() as session:
        through_orm = await reads.get_instances(session, [row.id for row in rows], project_id=world.caller.project_id)
    assert len(rows) == 4
    for row in rows:
        shown, other = LightInstance(row), Instance.of(through_orm[row.id])
        for field in fields(Instance):
            if field.init and field.name not in NOW:
                assert getattr(shown, field.name) == getattr(other, field.name), field.name
                assert type(getattr(shown, field.name)) is type(getattr(other, field.name)) or field.name == "row_id"


async def test_rows_by_their_ids_are_those_of_the_project(world: World):
    await fill(world)
    other = await world.new_project("other")
    theirs = await world.put(S.READY, project_id=other)
    mine = await world.put(S.DELETED)
    found = await light.by_ids(world.database, [theirs.id, mine.id], project_id=world.caller.project_id)
    assert list(found) == [mine.id]
    assert found[mine.id].status == "DELETED"


async def test_what_may_hold_secrets_is_not_read(world: World):
    await fill(world)
    rows = await light.page(
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
