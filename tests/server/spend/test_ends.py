"""The entry of a machine ends when the provider stopped charging for it, also if that was not seen at the time."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import select

from server.clock import now
from server.db.tables import Machine
from server.enums import InstanceStatus, OperationKind
from server.instances import machines, transitions
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from server.spend.machine_times import MachineTimes
from server.spend.sums import sum_entries
from tests.server.recovery.test_machines import replaced
from tests.server.spend.test_ledger import PRICE, change, entries, running, shows
from tests.support.lifecycle import STOP, ask, hasten
from tests.support.world import LIST, World

S = InstanceStatus
DELETE = "POST /gpu/instance/delete"
LOOK = "GET /gpu/instance"
RUN, AGO = timedelta(hours=1), timedelta(minutes=1)
REMOVED = "SELECT count(*) = 0 FROM machine WHERE removing_from IS NOT NULL AND ended_at IS NULL"


async def ready(world: World) -> tuple[UUID, str]:
    """A READY instance that has run for an hour."""
    one = (await world.create()).instance.id
    await world.work_until_status(one, S.READY)
    await began_earlier(world)
    return one, (await world.instance(one))["novita_id"]


async def began_earlier(world: World) -> None:
    """All machines began to run an hour before, in the ledger and at the provider."""
    earlier = "UPDATE {0} SET {1} = {1} - CAST($1 AS interval)"
    for table, column in (
        ("cost_entry", "began_at"),
        ("cost_entry", "run_began_at"),
        ("instance", "created_at"),
        ("machine", "began_at"),
    ):
        await world.execute(earlier.format(table, column), RUN)
    for machine in world.machines():
        machine.last_started_at -= RUN.total_seconds()


def stopped_a_minute_ago(world: World, novita_id: str) -> datetime:
    machine = world.simulator.world.instance(novita_id)
    assert machine.status == "exited"
    machine.last_stopped_at = (now() - AGO).timestamp()
    return datetime.fromtimestamp(int(machine.last_stopped_at), UTC)


async def only_entry(world: World) -> asyncpg.Record:
    (entry,) = await entries(world)
    return entry


@pytest.mark.parametrize("has_response", [True, False])
async def test_delete_overtakes_a_stop_whose_end_was_not_looked_at(world: World, has_response: bool):
    one, machine = await ready(world)
    if not has_response:
        world.faults(Fault(FaultKind.LOST_ANSWER, (STOP,), times=1))
    await ask(world, OperationKind.STOP, one)
    await until_called(world, STOP)
    hasten(world)
    stopped_at = stopped_a_minute_ago(world, machine)

    await world.work_until_over(await world.delete(one))

    assert (await only_entry(world))["ended_at"] == stopped_at


async def test_machine_that_is_removed_before_it_was_shown_counts_from_its_creation_on(world: World):
    one = (await world.create()).instance.id

    async def is_linked() -> bool:
        return (await world.instance(one))["novita_id"] is not None

    world.faults(Fault(FaultKind.ERROR, (LOOK, LIST)))
    await world.work_until(is_linked)
    deletion = await world.delete(one)
    await until_called(world, DELETE)
    await world.execute("UPDATE machine SET began_at = began_at - interval '1 minute'")
    await world.execute("UPDATE instance SET created_at = created_at - interval '2 minutes'")
    hasten(world)
    hasten(world)
    world.faults()
    assert await entries(world) == []

    await world.work_until_over(deletion)

    entry = await only_entry(world)
    accepted_at = await world.value("SELECT before ->> 'accepted_at' FROM operation WHERE id = $1", deletion)
    assert entry["began_at"] == await world.value("SELECT began_at FROM machine")
    assert entry["ended_at"] == datetime.fromisoformat(accepted_at)


async def until_called(world: World, route: str) -> None:
    async def is_called() -> bool:
        return world.calls(route) > 0

    await world.work_until(is_called)


async def test_machine_whose_container_has_ended_is_deleted_before_that_was_seen(world: World):
    one, machine = await ready(world)
    lifecycle.exit_by_itself(world.simulator.world, world.simulator.world.instance(machine), code=0)
    stopped_at = stopped_a_minute_ago(world, machine)

    await world.work_until_over(await world.delete(one))

    assert (await only_entry(world))["ended_at"] == stopped_at


async def test_start_that_a_delete_overtakes_is_in_the_ledger(world: World):
    one, machine = await ready(world)
    await ask(world, OperationKind.STOP, one)
    await world.work_until_status(one, S.EXITED)
    await world.execute("DELETE FROM cost_entry")
    world.simulator.world.instance(machine).last_stopped_at -= 120
    await ask(world, OperationKind.START, one)
    await until_called(world, "POST /gpu/instance/start")
    hasten(world)
    assert await entries(world) == []
    world.simulator.world.instance(machine).last_started_at -= 60
    began = int(world.simulator.world.instance(machine).last_started_at)

    await world.work_until_over(await world.delete(one))

    entry = await only_entry(world)
    assert entry["began_at"].timestamp() == began
    assert entry["ended_at"] - entry["began_at"] >= timedelta(seconds=59)


async def test_replaced_machine_that_was_reclaimed_before_its_removal(world: World):
    _, old, _ = await replaced(world)
    await began_earlier(world)
    lifecycle.exit_by_itself(world.simulator.world, world.simulator.world.instance(old), code=0)
    stopped_at = stopped_a_minute_ago(world, old)

    await removed(world)

    assert (await entry_of(world, old))["ended_at"] == stopped_at


async def test_removal_of_a_replaced_machine_whose_response_was_lost(world: World):
    _, old, _ = await replaced(world)
    await began_earlier(world)
    world.faults(Fault(FaultKind.LOST_ANSWER, (DELETE,), times=1))
    await until_called(world, DELETE)
    # The next try is a minute later.
    await world.execute("UPDATE machine SET removal_sent_at = removal_sent_at - interval '1 minute'")
    sent_at = await world.value("SELECT removal_sent_at FROM machine WHERE removing_from IS NOT NULL")
    hasten(world)

    await removed(world)

    assert (await entry_of(world, old))["ended_at"] == sent_at


async def removed(world: World) -> None:
    async def is_removed() -> bool:
        return await world.value(REMOVED)

    await world.work_until(is_removed)


async def entry_of(world: World, machine: str) -> asyncpg.Record:
    return await world.one("SELECT * FROM cost_entry WHERE machine = $1", machine)


async def test_machine_that_stopped_before_it_served(world: World):
    _, old, _ = await replaced(world)
    await began_earlier(world)
    began, stopped = now() - RUN, now() - AGO
    async with world.database.write() as session:
        machine = await machines.to_remove(session, (await entry_of(world, old))["instance_id"], old)
        assert machine is not None
        await machines.note_seen(session, machine, "exited", MachineTimes(started_at=began, stopped_at=stopped))

    assert (await entry_of(world, old))["ended_at"] == stopped


@pytest.mark.parametrize(("word", "ended"), [("running", None), ("exited", AGO)])
async def test_machine_besides_the_one_that_serves_began_before_the_response_to_its_create(
    world: World, word: str, ended: timedelta | None
):
    _, old, _ = await replaced(world)
    began = now().replace(microsecond=0) - RUN
    stopped = None if ended is None else now() - ended
    price_e5 = 10 + await world.value("SELECT price_e5 FROM machine WHERE novita_id = $1", old)  # since it was offered
    await world.execute("DELETE FROM cost_entry WHERE machine = $1", old)
    await world.execute("UPDATE machine SET began_at = $2 WHERE novita_id = $1", old, began + timedelta(seconds=7))

    for _ in range(2):
        async with world.database.write() as session:
            instance_id = await session.scalar(select(Machine.instance_id).where(Machine.novita_id == old))
            machine = await machines.to_remove(session, instance_id, old)
            assert machine is not None
            times = MachineTimes(started_at=began, stopped_at=stopped, price_e5=price_e5)
            await machines.note_seen(session, machine, word, times)

    entry = await entry_of(world, old)
    assert (entry["began_at"], entry["ended_at"], entry["price_e5"]) == (began, stopped, price_e5)


# Cuts, and ends at a wrong time, that come before the true end is seen.


@pytest.mark.parametrize("is_summed", [False, True])
async def test_labels_that_changed_after_the_unseen_stop_cost_nothing(world: World, is_summed: bool):
    one = await running(world, word="exited", created_at=now() - 2 * RUN)
    began, stopped = now() - RUN, now() - AGO
    await shows(world, one, "running", MachineTimes(started_at=began))
    await change(world, one, labels={"team": "b"})
    if is_summed:
        await sum_entries(world.database.raw)

    await shows(world, one, "exited", MachineTimes(started_at=began, stopped_at=stopped))

    rows = await entries(world)
    assert [(row["began_at"] - began, row["ended_at"] - row["began_at"]) for row in rows] == [
        (timedelta(0), stopped - began),
        (rows[1]["began_at"] - began, timedelta(0)),
    ]
    amounts = [row["amount_micros"] for row in rows]
    assert amounts == [round((stopped - began).total_seconds() * PRICE / 360), 0]
    await sum_entries(world.database.raw)
    assert await world.value("SELECT sum(amount_micros) FROM cost_day") == sum(amounts)
    paid = await world.value("SELECT sum(paid_us) FROM cost_day")
    assert paid == (stopped - began) / timedelta(microseconds=1)


async def test_end_written_without_the_providers_time_is_corrected_by_the_next_look(world: World):
    one = await running(world, word="exited", created_at=now() - 2 * RUN)
    began, stopped = now() - RUN, now() - AGO
    await shows(world, one, "running", MachineTimes(started_at=began))
    async with world.database.write() as session:
        await transitions.transition(session, one, S.STOPPING, cause=transitions.Cause())
        await transitions.transition(session, one, S.EXITED, cause=transitions.Cause())
    assert (await only_entry(world))["ended_at"] > stopped

    await shows(world, one, "exited", MachineTimes(started_at=began, stopped_at=stopped))

    assert (await only_entry(world))["ended_at"] == stopped


async def test_run_that_was_over_before_it_was_first_seen_costs_nothing_after_its_end(world: World):
    one = await running(world, word="creating", created_at=now() - RUN)
    await shows(world, one, "pulling")

    await shows(world, one, "exited", MachineTimes(stopped_at=now() - AGO))

    entry = await only_entry(world)
    assert entry["ended_at"] == entry["began_at"]


async def test_end_that_was_none_leaves_no_gap(world: World):
    one = await running(world, word="exited", created_at=now() - 2 * RUN)
    began = now() - RUN
    await shows(world, one, "running", MachineTimes(started_at=began))
    await shows(world, one, "exited")

    await shows(world, one, "running", MachineTimes(started_at=began))

    rows = await entries(world)
    assert [row["run_began_at"] for row in rows] == [began, began]
    assert (rows[0]["ended_at"], rows[1]["ended_at"]) == (rows[1]["began_at"], None)
