"""Every machine that is paid for has one open entry, from what the provider shows."""

import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from server.clock import now
from server.enums import InstanceStatus, OperationKind
from server.instances import transitions
from server.instances.commands.adopt import AdoptDraft, adopt_instance
from server.instances.provider.ledger_repair import cut_overnight, repair_entries
from server.instances.provider.reconcile import reconcile
from server.instances.provider.states import times_of
from server.simulator.faults import Fault, FaultKind
from server.spend.machine_times import MachineTimes
from server.spend.sums import sum_entries
from tests.support.aging import age_all
from tests.support.lifecycle import ask, ready
from tests.support.machines import make_running, remove_outside, start_outside, stop_outside
from tests.support.waiting import until
from tests.support.world import World

S = InstanceStatus
PRICE = 36_000  # 0.36 USD an hour: 100 micros a second
CAUSE = transitions.Cause()
DELETE = "POST /gpu/instance/delete"


async def entries(world: World) -> list[asyncpg.Record]:
    return await world.rows("SELECT * FROM cost_entry ORDER BY began_at, id")


async def running(world: World, word: str | None = "running", **fields: Any) -> UUID:
    """A READY instance that no entry was written for."""
    values = {"novita_id": "m1", "novita_status": word, "price_per_hour_e5": PRICE, "running_at": None}
    return (await world.put(S.READY, **{**values, **fields})).id


async def change(world: World, instance_id: UUID, times: MachineTimes | None = None, **fields: Any) -> None:
    async with world.database.write() as session:
        await transitions.update(session, instance_id, cause=CAUSE, times=times or MachineTimes(), **fields)


async def shows(world: World, instance_id: UUID, word: str, times: MachineTimes | None = None) -> None:
    await change(world, instance_id, times, novita_status=word)


async def test_a_machine_is_paid_for_from_pulling_until_it_has_exited(world: World):
    one = await running(world, word="creating")
    await shows(world, one, "pulling")
    await shows(world, one, "running")
    await shows(world, one, "stopping")
    (entry,) = await entries(world)
    assert (entry["instance_id"], entry["machine"], entry["price_e5"], entry["ended_at"]) == (one, "m1", PRICE, None)
    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '100 seconds'")

    await shows(world, one, "exited")

    (entry,) = await entries(world)
    seconds = (entry["ended_at"] - entry["began_at"]).total_seconds()
    assert entry["amount_micros"] == round(seconds * 100)
    assert 100 <= seconds < 110


@pytest.mark.parametrize(("first", "word", "is_open"), [("running", "quantum", True), ("exited", "quantum", False)])
async def test_an_unknown_word_changes_nothing(world: World, first: str, word: str, is_open: bool):
    one = await running(world, word="creating")
    await shows(world, one, first)
    await shows(world, one, word)
    assert [entry["ended_at"] for entry in await entries(world)] == ([None] if is_open else [])

    await shows(world, one, "running")

    (entry,) = await entries(world)
    assert entry["ended_at"] is None


async def test_the_times_are_the_providers_where_they_can_be_true(world: World):
    one = await running(world, word="exited")
    began, ended = now() - timedelta(minutes=3), now() - timedelta(minutes=1)

    await shows(world, one, "running", MachineTimes(started_at=began))
    await shows(world, one, "exited", MachineTimes(started_at=began, stopped_at=ended))
    # The start of the run before, and an end before the beginning.
    await shows(world, one, "starting", MachineTimes(started_at=began, stopped_at=ended))
    await shows(world, one, "exited", MachineTimes(started_at=began, stopped_at=ended))

    rows = await entries(world)
    first, second = rows[0], rows[-1]
    assert (first["began_at"], first["ended_at"], first["amount_micros"]) == (began, ended, 12_000)
    assert second["began_at"] > ended
    assert second["ended_at"] - second["began_at"] < timedelta(seconds=5)


async def test_a_machine_started_in_the_second_of_its_stop_is_paid_for_from_then_on(world: World):
    (machine,) = await make_running(world, 1)
    remote = await world.novita.instance(machine)
    one = await running(world, word="creating", novita_id=machine)
    stopped = now().replace(microsecond=0) - timedelta(seconds=30)
    earlier = replace(remote, last_started_at=stopped - timedelta(minutes=1), last_stopped_at=None)
    await shows(world, one, "running", times_of(earlier))
    await shows(world, one, "exited", times_of(replace(earlier, status="exited", last_stopped_at=stopped)))

    await shows(world, one, "running", times_of(replace(remote, last_started_at=stopped, last_stopped_at=stopped)))

    rows = await entries(world)
    assert [(row["began_at"], row["ended_at"]) for row in rows] == [
        (stopped - timedelta(minutes=1), stopped),
        (stopped, None),
    ]


@pytest.mark.parametrize("ended", [None, timedelta(seconds=5)])
async def test_the_provider_may_name_an_earlier_start_but_none_before_the_last_end(
    world: World, ended: timedelta | None
):
    one = await running(world, word="exited")
    began = now() - timedelta(seconds=20)
    if ended is not None:
        await shows(world, one, "running", MachineTimes(started_at=began - timedelta(hours=1)))
        await shows(world, one, "exited", MachineTimes(began - timedelta(hours=1), began + ended))
    await shows(world, one, "starting")

    await shows(world, one, "running", MachineTimes(started_at=began))

    last = (await entries(world))[-1]
    assert (last["began_at"], last["run_began_at"]) == (began + (ended or timedelta(0)),) * 2
    assert last["ended_at"] is None


async def test_another_price_or_label_cuts_the_entry(world: World):
    one = await running(world, word="exited", labels={"team": "a"})
    await shows(world, one, "running", MachineTimes(started_at=now() - timedelta(seconds=5)))

    await change(world, one, labels={"team": "b"})
    await change(world, one, price_per_hour_e5=2 * PRICE)

    rows = await entries(world)
    assert [(row["labels"], row["price_e5"]) for row in rows] == [
        ('{"team": "a"}', PRICE),
        ('{"team": "b"}', PRICE),
        ('{"team": "b"}', 2 * PRICE),
    ]
    assert [row["ended_at"] for row in rows] == [rows[1]["began_at"], rows[2]["began_at"], None]


@pytest.mark.parametrize(("shown", "price"), [(37_000, 37_000), (2 * PRICE, PRICE), (None, PRICE), (0, PRICE)])
async def test_the_price_is_the_one_that_the_provider_shows_for_the_same_thing(
    world: World, shown: int | None, price: int
):
    one = await running(world, word="creating")
    times = MachineTimes(started_at=now() - timedelta(seconds=5), price_e5=shown)

    for word in ("running", "stopping"):
        await shows(world, one, word, times)

    (entry,) = await entries(world)
    assert (entry["price_e5"], (await world.instance(one))["price_per_hour_e5"]) == (price, price)


async def test_a_run_between_two_looks_is_written_whole_and_once(world: World):
    one = await running(world, word="creating", created_at=now() - timedelta(hours=1))
    began, ended = now() - timedelta(minutes=3), now() - timedelta(minutes=1)

    for word in ("exited", "toStart", "exited"):
        await shows(world, one, word, MachineTimes(started_at=began, stopped_at=ended))

    (entry,) = await entries(world)
    assert (entry["began_at"], entry["ended_at"], entry["amount_micros"]) == (began, ended, 12_000)


async def test_a_run_from_before_the_instance_was_adopted_is_not_its_own(world: World):
    one = await running(world, word="creating", created_at=now() - timedelta(minutes=2))
    began, ended = now() - timedelta(minutes=3), now() - timedelta(minutes=1)

    await shows(world, one, "exited", MachineTimes(started_at=began, stopped_at=ended))

    assert await entries(world) == []


def days_ago(days: int, hours: int = 0) -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days, hours=-hours)


async def test_an_entry_lies_within_one_day_however_late_it_is_cut(world: World):
    one = await running(world, word="exited")
    await shows(world, one, "running", MachineTimes(started_at=days_ago(3, hours=18)))
    assert len(await entries(world)) == 1

    assert await cut_overnight(world.database) == 1
    assert await cut_overnight(world.database) == 0

    rows = await entries(world)
    assert [(row["began_at"], row["ended_at"]) for row in rows] == [
        (days_ago(3, hours=18), days_ago(2)),
        (days_ago(2), days_ago(1)),
        (days_ago(1), days_ago(0)),
        (days_ago(0), None),
    ]
    assert [row["amount_micros"] for row in rows] == [6 * 360_000, 24 * 360_000, 24 * 360_000, None]


async def test_the_end_of_an_entry_over_midnight_is_cut_as_well(world: World):
    one = await running(world, word="exited")
    await shows(world, one, "running", MachineTimes(started_at=days_ago(2, hours=23)))

    await shows(world, one, "exited", MachineTimes(stopped_at=days_ago(1, hours=1)))

    assert [row["amount_micros"] for row in await entries(world)] == [360_000, 360_000]


async def test_of_one_instance_two_entries_are_never_open(world: World):
    one = await running(world, word="exited")
    await shows(world, one, "running")
    with pytest.raises(asyncpg.UniqueViolationError):
        await world.execute(
            """INSERT INTO cost_entry (project_id, instance_id, machine, labels, product_name, run_began_at, began_at)
               SELECT project_id, instance_id, machine, labels, product_name, now(), now() FROM cost_entry"""
        )


async def test_entries_are_summed_by_day_once(world: World):
    one = await running(world, word="exited")
    for _ in range(2):
        await shows(world, one, "running")
        await shows(world, one, "exited")
    await world.execute("UPDATE cost_entry SET amount_micros = 7")

    await sum_entries(world.database.raw)
    await shows(world, one, "running")
    await sum_entries(world.database.raw)

    (day,) = await world.rows("SELECT * FROM cost_day")
    assert (day["instance_id"], day["day"], day["amount_micros"]) == (one, datetime.now(UTC).date(), 14)
    assert await world.value("SELECT count(*) FROM cost_entry WHERE NOT is_summed") == 1


async def test_a_subscription_is_paid_for_in_advance(world: World):
    one = await running(world, word="exited", billing_mode="monthly")
    await shows(world, one, "running")
    assert await repair_entries(world.database, {}) == 0
    assert await entries(world) == []


async def test_a_change_that_is_rolled_back_leaves_the_ledger_as_it_was(world: World):
    one = await running(world, word="exited")
    with contextlib.suppress(RuntimeError):
        async with world.database.write() as session:
            await transitions.update(session, one, cause=CAUSE, novita_status="running")
            raise RuntimeError
    assert await entries(world) == []


# A process of the release before writes no entries; reconcile does, and counts them.


async def test_what_an_older_process_did_is_repaired_with_the_times_of_the_provider(world: World):
    one = await ready(world)
    began = world.machines()[0].last_started_at
    report = await reconcile(world.database, world.novita)
    assert report.ledger == 1
    (entry,) = await entries(world)
    assert entry["began_at"].timestamp() == int(began)

    row = await world.instance(one)
    await stop_outside(world, row["novita_id"])
    ended = world.machines()[0].last_stopped_at
    await world.execute("UPDATE instance SET status = 'EXITED', novita_status = 'exited'")
    assert (await reconcile(world.database, world.novita)).ledger == 1
    (entry,) = await entries(world)
    assert entry["ended_at"] in (datetime.fromtimestamp(int(ended), UTC), entry["began_at"])

    assert (await reconcile(world.database, world.novita)).ledger == 0


async def test_labels_that_an_older_process_wrote_cut_the_entry(world: World):
    one = await running(world, word="exited")
    await shows(world, one, "running")
    await world.execute("""UPDATE instance SET labels = '{"team": "b"}'""")

    assert await repair_entries(world.database, {}) == 1
    assert await repair_entries(world.database, {}) == 0

    rows = await entries(world)
    assert [(row["labels"], row["ended_at"] is None) for row in rows] == [("{}", False), ('{"team": "b"}', True)]


async def test_the_entry_of_a_deleted_instance_ends_when_it_was_deleted(world: World):
    one = await running(world, word="exited")
    await shows(world, one, "running", MachineTimes(started_at=now() - timedelta(minutes=5)))
    await world.execute(
        "UPDATE instance SET status = 'DELETED', deleted_at = now() - interval '1 minute' WHERE id = $1", one
    )

    assert await repair_entries(world.database, {}) == 1

    (entry,) = await entries(world)
    assert entry["ended_at"] == (await world.instance(one))["deleted_at"]


# The real paths, with the provider.


async def test_a_create_a_stop_a_start_and_a_delete_are_two_runs_of_its_token(world: World):
    accepted = await world.create(labels={"team": "a"})
    one = accepted.instance.id
    await world.work_until_status(one, S.READY)
    (entry,) = await entries(world)
    row = await world.instance(one)
    assert (entry["token_id"], entry["labels"]) == (world.caller.token_id, '{"team": "a"}')
    assert (entry["price_e5"], entry["machine"], entry["region"]) == (
        row["price_per_hour_e5"],
        row["novita_id"],
        row["region"],
    )

    await ask(world, OperationKind.STOP, one)
    await world.work_until_status(one, S.EXITED)
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 0
    await ask(world, OperationKind.START, one)
    await world.work_until_status(one, S.READY)
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 1
    deletion = await world.delete(one)
    await world.work_until_over(deletion)

    rows = await entries(world)
    assert all(row["ended_at"] is not None and row["token_id"] == world.caller.token_id for row in rows)
    accepted_at = await world.value("SELECT before ->> 'accepted_at' FROM operation WHERE id = $1", deletion)
    assert rows[-1]["ended_at"] <= datetime.fromisoformat(accepted_at)


async def test_a_machine_that_was_never_looked_at_is_paid_for_until_its_removal(world: World):
    one = (await world.create()).instance.id
    await world.work_until_status(one, S.STARTING)
    assert (await world.instance(one))["novita_status"] is None
    await until(lambda: world.machines()[0].status == "running")
    began = world.machines()[0].last_started_at

    deletion = await world.delete(one)
    await world.work_until_over(deletion)

    (entry,) = await entries(world)
    accepted_at = await world.value("SELECT before ->> 'accepted_at' FROM operation WHERE id = $1", deletion)
    assert entry["began_at"].timestamp() == int(began)
    assert entry["began_at"] < entry["ended_at"] <= datetime.fromisoformat(accepted_at)


@pytest.mark.parametrize(
    ("kind", "was_removed"), [(FaultKind.LOST_ANSWER, True), (FaultKind.DROP, False), (FaultKind.GARBAGE, False)]
)
async def test_a_removal_without_a_response_ends_the_entry_when_it_was_sent_if_it_was_done(
    world: World, kind: FaultKind, was_removed: bool
):
    one = (await world.create()).instance.id
    await world.work_until_status(one, S.READY)
    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '1 hour'")
    (machine,) = world.machines()
    world.faults(Fault(kind, (DELETE,), times=1))
    deletion = await world.delete(one)
    await world.work_once()
    assert "accepted_at" not in (await world.operation(deletion))["before"]
    # The next try is a minute later.
    await world.execute(
        """UPDATE operation SET before = jsonb_set(before, '{sent_at}', to_jsonb(now() - interval '1 minute'))
           WHERE id = $1 AND before ->> 'sent_at' IS NOT NULL""",
        deletion,
    )
    time = "SELECT CAST(before ->> '{}' AS timestamptz) FROM operation WHERE id = $1"
    sent_at = await world.value(time.format("sent_at"), deletion)
    assert sent_at is not None
    await until(lambda: not was_removed or world.machines() == [])

    await world.work_until_over(deletion)

    (entry,) = await entries(world)
    accepted_at = await world.value(time.format("accepted_at"), deletion)
    removed_at = datetime.fromtimestamp(int(machine.last_stopped_at), UTC)
    if was_removed:  # the machine may still be shown as removed, with its time, or not at all
        assert (entry["ended_at"] in (sent_at, removed_at), accepted_at in (None, sent_at)) == (True, True)
    else:  # in the second in which it was removed; a machine that is still shown names that itself
        assert (entry["ended_at"] in (accepted_at, removed_at), accepted_at > sent_at) == (True, True)


async def test_lost_machine_that_is_deleted_then_is_paid_for_until_it_was_first_not_found(world: World):
    instance_id, _ = await ready(world, "lost"), await ready(world, "other")
    await remove_outside(world, (await world.instance(instance_id))["novita_id"])
    await reconcile(world.database, world.novita)
    await age_all(world, timedelta(minutes=2))  # longer than GONE_GRACE

    await world.delete(instance_id)
    await world.work_until_status(instance_id, S.DELETED)

    row = await world.one(
        "SELECT ended_at, missing_since FROM cost_entry JOIN instance ON instance.id = instance_id"
        " WHERE instance_id = $1",
        instance_id,
    )
    assert row["missing_since"] is not None
    assert row["ended_at"] == row["missing_since"]


async def test_what_happens_outside_is_seen_by_reconcile(world: World):
    (machine,) = await make_running(world, 1, http=False)
    instance = await adopt_instance(world.database, world.reader, AdoptDraft(machine), by=world.caller)
    await world.work_until_status(instance.id, S.READY)
    (entry,) = await entries(world)
    assert entry["began_at"].timestamp() == int(world.machines()[0].last_started_at)

    await stop_outside(world, machine)
    await reconcile(world.database, world.novita)
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 0
    await start_outside(world, machine)
    await reconcile(world.database, world.novita)
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 1

    await world.work_until_status(instance.id, S.READY)
    await remove_outside(world, machine)
    await reconcile(world.database, world.novita)
    # Well before now by either clock, and after the run began.
    await world.execute(
        """UPDATE cost_entry SET began_at = began_at - interval '1 minute' WHERE ended_at IS NULL;
           UPDATE instance SET missing_since = missing_since - interval '20 seconds'"""
    )
    missing_since = (await world.instance(instance.id))["missing_since"]
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 1
    await reconcile(world.database, world.novita, gone_grace=timedelta(0))
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 0
    assert await world.value("SELECT ended_at FROM cost_entry ORDER BY id DESC LIMIT 1") == missing_since
