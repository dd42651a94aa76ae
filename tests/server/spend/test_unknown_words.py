"""An unknown word changes nothing about a machine that was started: it is paid for since its start, seen or not."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import select

from server.clock import now
from server.db.tables import Machine
from server.enums import InstanceStatus
from server.instances import machines
from server.instances.provider.ledger_repair import repair_entries
from server.instances.provider.reconcile import reconcile
from server.simulator.faults import Fault, FaultKind
from server.spend.machine_times import MachineTimes
from tests.server.recovery.test_machines import replaced
from tests.server.spend.test_ends import LOOK, entry_of, only_entry
from tests.server.spend.test_ledger import change, entries, running, shows
from tests.support.waiting import until
from tests.support.world import LIST, World

S = InstanceStatus
WORD = "hibernating"
AGO = timedelta(minutes=5)


async def made(world: World) -> tuple[UUID, datetime]:
    """An instance that was shown with an unknown word only, and when the provider says that its machine was started."""
    world.faults(Fault(FaultKind.UNKNOWN_STATUS, (LOOK, LIST), word=WORD))
    one = (await world.create()).instance.id
    await world.work_until_status(one, S.STARTING)

    def is_up() -> bool:
        world.simulator.world.advance()
        return all(each.status == "running" for each in world.machines())

    await until(is_up)
    (machine,) = world.machines()
    return one, datetime.fromtimestamp(int(machine.last_started_at), UTC)


async def look(world: World) -> None:
    await world.hurry()
    await world.work_once()


async def test_machine_that_is_never_shown_with_a_known_word_is_paid_for_until_its_delete(world: World):
    one, started_at = await made(world)
    await look(world)
    await look(world)
    assert (await world.instance(one))["novita_status"] == WORD
    entry = await only_entry(world)
    assert (entry["began_at"], entry["ended_at"]) == (started_at, None)

    deletion = await world.work_until_over(await world.delete(one))

    accepted_at = datetime.fromisoformat(json.loads(deletion["before"])["accepted_at"])
    entry = await only_entry(world)
    assert (entry["began_at"], entry["ended_at"]) == (started_at, accepted_at)


async def test_delete_looks_at_a_machine_that_was_started_since_its_unknown_word_was_shown(world: World):
    one, started_at = await made(world)
    await change(world, one, novita_status=WORD)
    assert await entries(world) == []

    await world.work_until_over(await world.delete(one))

    entry = await only_entry(world)
    assert (entry["began_at"], entry["ended_at"] is None) == (started_at, False)


async def test_pages_show_the_start_of_a_machine_whose_word_was_known_before(world: World):
    one, started_at = await made(world)
    await change(world, one, novita_status=WORD)
    assert await entries(world) == []

    for _ in range(2):
        await reconcile(world.database, world.novita)

    entry = await only_entry(world)
    assert (entry["began_at"], entry["ended_at"]) == (started_at, None)


async def test_adopted_machine_was_started_before_its_instance(world: World):
    one = await running(world, word="creating")
    started_at = now() - AGO

    await shows(world, one, WORD, MachineTimes(started_at=started_at))

    entry = await only_entry(world)
    assert (entry["began_at"], entry["ended_at"]) == (started_at, None)


async def test_without_a_start_nothing_begins(world: World):
    one = await running(world, word="creating", running_at=now() - AGO)

    for _ in range(2):
        await shows(world, one, WORD, MachineTimes())
    await repair_entries(world.database, {})

    assert await entries(world) == []


@pytest.mark.parametrize("names_the_stop", [True, False])
async def test_run_that_is_over_does_not_begin_again(world: World, names_the_stop: bool):
    one = await running(world, word="creating")
    started_at, stopped_at = now() - 2 * AGO, now() - AGO
    await shows(world, one, "running", MachineTimes(started_at=started_at))
    await shows(world, one, "exited", MachineTimes(started_at=started_at, stopped_at=stopped_at))

    for _ in range(2):
        await shows(world, one, WORD, MachineTimes(started_at, stopped_at if names_the_stop else None))

    entry = await only_entry(world)
    assert (entry["began_at"], entry["ended_at"]) == (started_at, stopped_at)


async def test_next_run_begins_under_an_unknown_word(world: World):
    one = await running(world, word="creating")
    started_at, stopped_at, again_at = now() - 3 * AGO, now() - 2 * AGO, now() - AGO
    await shows(world, one, "running", MachineTimes(started_at=started_at))
    await shows(world, one, "exited", MachineTimes(started_at=started_at, stopped_at=stopped_at))

    await shows(world, one, WORD, MachineTimes(again_at, stopped_at))

    assert [(row["began_at"], row["ended_at"]) for row in await entries(world)] == [
        (started_at, stopped_at),
        (again_at, None),
    ]


async def test_open_entry_stays_open(world: World):
    one = await running(world, word="creating")
    times = MachineTimes(started_at=now() - AGO)
    for word in ("running", WORD, WORD, "running"):
        await shows(world, one, word, times)

    entry = await only_entry(world)
    assert (entry["began_at"], entry["ended_at"]) == (times.started_at, None)


@pytest.mark.parametrize(("ago", "is_paid"), [(AGO, True), (None, False)])
async def test_second_machine(world: World, ago: timedelta | None, is_paid: bool):
    _, old, _ = await replaced(world)
    await world.execute("DELETE FROM cost_entry WHERE machine = $1", old)
    times = MachineTimes(started_at=None if ago is None else now() - ago)

    for word in (WORD, WORD):
        async with world.database.write() as session:
            machine = (await session.execute(select(Machine).where(Machine.novita_id == old))).scalar_one()
            await machines.note_seen(session, machine, word, times)

    if is_paid:
        entry = await entry_of(world, old)
        assert (entry["began_at"], entry["ended_at"]) == (times.started_at, None)
    assert await world.value("SELECT count(*) FROM cost_entry WHERE machine = $1", old) == int(is_paid)
