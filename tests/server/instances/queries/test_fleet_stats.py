"""What the provider bills for: the same in Python and in SQL, and summed for the instances that match."""

import pytest
from sqlalchemy import select

from server.billing import is_billed
from server.db.tables import Instance
from server.enums import InstanceStatus
from server.instances.provider.states import STATES
from server.instances.queries.fleet import IS_BILLED, FleetStats, fleet_stats
from server.instances.queries.instances import InstanceFilter
from tests.support.world import World

S = InstanceStatus

BILLED = {
    "pulling", "starting", "running", "toStop", "stopping", "toRestart", "restarting", "toReset", "resetting",
    "migrating", "freezing",
}  # fmt: skip


def test_words_of_the_provider_that_are_billed():
    assert {word for word in STATES if is_billed(S.FAILED, word)} == BILLED
    assert {word for word in STATES if is_billed(None, word)} == BILLED


@pytest.mark.parametrize("status", [S.EXITED, S.DELETED])
def test_stopped_and_deleted_instances_are_never_billed(status: InstanceStatus):
    assert [word for word in STATES if is_billed(status, word)] == []


def test_machine_that_was_not_seen_yet_is_billed_by_its_status():
    unbilled = {status for status in S if not is_billed(status, None)}
    assert unbilled == {S.CREATING, S.EXITED, S.DELETING, S.DELETED, S.FAILED}


def test_unknown_word_is_billed():
    assert is_billed(S.STARTING, "hibernating")


async def test_condition_in_sql_is_the_same_as_in_python(world: World):
    expected: dict[str, bool] = {}
    for status in S:
        for word in (*STATES, "hibernating", None):
            name = f"{status}-{word}".lower().replace("_", "-")
            await world.put(status, name=name, novita_status=word)
            expected[name] = is_billed(status, word)

    async with world.database.read() as session:
        found = await session.execute(select(Instance.name, IS_BILLED))
        assert {name: bool(billed) for name, billed in found} == expected


async def test_stats_count_every_billed_machine(world: World):
    for status, word, price in (
        (S.CREATING, None, None),
        (S.STARTING, "creating", 1),
        (S.STARTING, "pulling", 10),
        (S.READY, "running", 100),
        (S.STOPPING, "stopping", 1_000),
        (S.RESTARTING, "restarting", 10_000),
        (S.MIGRATING, "migrating", 100_000),
        (S.FAILED, "running", 1_000_000),
        (S.FAILED, "removed", 5),
        (S.EXITED, "exited", 7),
        (S.DELETING, "running", 10_000_000),
        (S.DELETED, "removed", 9),
        (S.READY, "running", None),
    ):
        await world.put(status, novita_status=word, price_per_hour_e5=price)

    async with world.database.read() as session:
        stats = await fleet_stats(session, project_id=world.caller.project_id)

    assert (stats.billed, stats.unpriced, stats.price_per_hour_e5) == (8, 1, 11_111_110)
    assert sum(stats.by_status.values()) == 12


async def test_stats_follow_the_filter(world: World):
    await world.put(labels={"team": "a"}, novita_status="running", price_per_hour_e5=10)
    await world.put(labels={"team": "b"}, novita_status="running", price_per_hour_e5=100)
    await world.put(S.EXITED, labels={"team": "a"}, novita_status="exited", price_per_hour_e5=1_000)
    await world.put(S.DELETED, labels={"team": "a"}, price_per_hour_e5=10_000)

    async def stats(wanted: InstanceFilter) -> FleetStats:
        async with world.database.read() as session:
            return await fleet_stats(session, project_id=world.caller.project_id, wanted=wanted)

    assert await stats(InstanceFilter(labels=(("team", "a"),))) == FleetStats(
        {S.READY: 1, S.EXITED: 1}, billed=1, unpriced=0, price_per_hour_e5=10
    )
    assert (await stats(InstanceFilter(statuses=(S.DELETED,)))).by_status == {S.DELETED: 1}
    assert (await stats(InstanceFilter(name_contains="nothing"))) == FleetStats({}, 0, 0, 0)


async def test_burn_rate_is_what_the_provider_charges_at_every_step(world: World):
    """Whenever the rows are as new as the machines, the sums are equal."""
    for number in range(3):
        await world.create(f"n{number}")

    async def compare() -> None:
        machines = [(each.id, each.status, each.price) for each in world.machines()]
        for id, word, _ in machines:
            await world.execute("UPDATE instance SET novita_status = $2 WHERE novita_id = $1", id, word)
        charged = sum(price for _, word, price in machines if word in BILLED)
        async with world.database.read() as session:
            stats = await fleet_stats(session, project_id=world.caller.project_id)
        assert stats.price_per_hour_e5 == charged

    async def all_ready() -> bool:
        await compare()
        return await world.value("SELECT count(*) FROM instance WHERE status = 'READY'") == 3

    await world.work_until(all_ready)
    assert (await world.value("SELECT sum(price_per_hour_e5) FROM instance")) > 0
