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


async def test_when_it_was_last_seen_counts_as_it_does_through_the_orm(world: World):
    long_ago = now() - timedelta(hours=1)
    row = await world.put(S.STARTING, novita_id="n1", observed_at=long_ago, status_since=long_ago)
    found = (await light.by_ids(world.database, [row.id], project_id=world.caller.project_id))[row.id]
    for seen_at in (None, long_ago, now()):
        shown, other = LightInstance(found, seen_at=seen_at), Instance.of(row, seen_at=seen_at)
        assert shown.stale == other.stale
        assert shown.stale == (seen_at is None or seen_at == long_ago)


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


async def page(world: World, database: Any = None, **wanted: Any) -> Any:
    by_name: dict[str, Any] = {"first": 10, "after": None, "order": InstanceOrder.NAME, "descending": False}
    wanted = {"project_id": world.caller.project_id} | by_name | wanted
    return await light.page(database or world.database, **wanted)


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

    @property
    def raw(self) -> Any:
        return self

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
    monkeypatch.setattr(light, "MOST_KEPT", 2)
    await fill(world)
    kept = light.Kept()
    pool = world.database.raw
    for record in await pool.fetch(light.BY_IDS, [row.id for row in await page(world)], world.caller.project_id):
        row = kept.keep(record)
        assert row.id == record["id"]
    assert len(kept) == 2
