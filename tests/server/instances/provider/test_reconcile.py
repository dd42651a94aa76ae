"""Changes made at the provider without us are detected and applied; machines of others are left alone."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from server.clock import new_id, now
from server.db.database import Database
from server.db.timeouts import Timeouts
from server.enums import Billing, InstanceStatus, OperationKind, Role
from server.errors import IllegalTransition, Invalid, NotFound, NovitaError, Refused
from server.instances import transitions
from server.instances.commands.adopt import AdoptDraft, adopt_instance
from server.instances.provider.absence import note_missing
from server.instances.provider.drift import Correction, apply_snapshot
from server.instances.provider.reconcile import reconcile, sync_project
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.unlinked import Origin
from server.queue.kinds import Reconcile
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import ask
from tests.support.machines import (
    list_all,
    make_machine,
    make_running,
    missing_for,
    reclaim,
    remove_outside,
    start_outside,
    status_of,
    stop_outside,
)
from tests.support.waiting import until
from tests.support.world import CREATE, LIST, World

S = InstanceStatus


async def test_an_instance_stopped_in_the_console_becomes_exited_with_an_event(world: World):
    instance_id, machine = await _ready(world)
    await stop_outside(world, machine)

    report = await reconcile(world.database, world.novita)

    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["novita_status"]) == (S.EXITED, "STOPPED_OUTSIDE", "exited")
    assert report.changes[Correction.STOPPED] == 1
    assert (await world.event_types(instance_id))[-1] == "instance.exited"


async def test_a_locked_row_and_one_that_can_not_be_written_hold_up_no_other(world: World, database_url: str):
    patient = Database(database_url, timeouts=Timeouts(idle=timedelta(minutes=5)))
    ids = [await _ready(world) for _ in range(3)]
    for _, machine in ids:
        await stop_outside(world, machine)
    (locked, _), (broken, _), (other, _) = ids
    await world.execute(f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF NEW.id = '{broken}' THEN RAISE EXCEPTION 'broken'; END IF; RETURN NEW; END $$
    """)
    await world.execute("CREATE TRIGGER refuse BEFORE UPDATE ON instance FOR EACH ROW EXECUTE FUNCTION refuse()")
    try:
        async with patient.write() as holder:
            await transitions.lock(holder, locked)
            report = await reconcile(world.database, world.novita)
    finally:
        await world.execute("DROP FUNCTION refuse CASCADE")
        await patient.close()

    assert (report.changes[Correction.STOPPED], report.changes[Correction.SKIPPED]) == (1, 2)
    assert [(await world.instance(id))["status"] for id in (locked, broken, other)] == [S.READY, S.READY, S.EXITED]

    await reconcile(world.database, world.novita)
    assert [(await world.instance(id))["status"] for id in (locked, broken, other)] == [S.EXITED] * 3


async def test_an_instance_started_in_the_console_is_followed_to_ready(world: World):
    instance_id, machine = await _ready(world)
    await stop_outside(world, machine)
    await reconcile(world.database, world.novita)
    await start_outside(world, machine)

    report = await reconcile(world.database, world.novita)
    assert report.changes[Correction.STARTED] == 1
    await world.work_until_status(instance_id, S.READY)

    statuses = [event.data["to"] for event in await world.events(instance_id) if "to" in event.data]
    assert statuses[-3:] == [S.STARTING, S.RUNNING, S.READY]
    assert await world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL") == 0


async def test_an_instance_removed_in_the_console_has_failed_and_keeps_its_row(world: World):
    instance_id, machine = await _ready(world)
    await remove_outside(world, machine)
    await reconcile(world.database, world.novita)
    assert (await world.instance(instance_id))["status"] == S.READY
    await missing_for(world, 61)

    report = await reconcile(world.database, world.novita)

    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"]) == (S.FAILED, "GONE_AT_PROVIDER")
    assert report.changes[Correction.GONE] == 1
    operation = await world.work_until_over(await world.delete(instance_id))
    assert operation["status"] == "SUCCEEDED"
    assert (await world.instance(instance_id))["status"] == S.DELETED


async def test_a_fleet_at_rest_costs_one_list_and_no_event(world: World):
    instance_id, _ = await _ready(world)
    events = await world.event_types(instance_id)
    calls = world.calls()

    report = await reconcile(world.database, world.novita)

    assert (report.compared, report.changes[Correction.NONE]) == (1, 1)
    assert world.calls() - calls == world.calls(LIST)
    assert await world.event_types(instance_id) == events


async def test_an_instance_that_the_list_leaves_out_is_not_called_gone(world: World):
    world.faults(Fault(FaultKind.LIST_LAG, routes=(CREATE,), seconds=60))
    instance_id, _ = await _ready(world)

    report = await reconcile(world.database, world.novita)

    assert report.changes == {Correction.NONE: 1}
    assert (await world.instance(instance_id))["status"] == S.READY


async def test_a_late_snapshot_never_overwrites_newer_state(world: World):
    """Guards against a read that overwrites READY with running and loses concurrent writes."""
    instance_id, machine = await _ready(world)
    asked_at = now()
    old = ProviderSnapshot.of(await world.novita.instance(machine), asked_at=asked_at)
    async with world.database.write() as session:
        await transitions.transition(session, instance_id, S.EXITED, cause=transitions.Cause())
    version = (await world.instance(instance_id))["version"]

    async with world.database.write() as session:
        change = await apply_snapshot(
            session, instance_id, old, machine=old.id, asked_at=asked_at, cause=transitions.Cause()
        )

    row = await world.instance(instance_id)
    assert (change, row["status"], row["version"]) == (Correction.NONE, S.EXITED, version)


async def test_removal_that_a_delete_waits_for_is_left_to_its_own_job(world: World):
    instance_id, machine = await _ready(world)
    seen = ProviderSnapshot.of(await world.novita.instance(machine), asked_at=now())
    await world.delete(instance_id)
    before = await world.instance(instance_id)
    snapshot = replace(seen, status="removing", endpoints=())

    async with world.database.write() as session:
        change = await apply_snapshot(
            session, instance_id, snapshot, machine=machine, asked_at=now(), cause=transitions.Cause()
        )

    assert change is Correction.NONE
    assert await world.instance(instance_id) == before


@pytest.mark.parametrize("is_gone", [False, True])
async def test_what_was_found_out_about_a_former_machine_is_no_change_of_the_instance(world: World, is_gone: bool):
    instance_id, machine = await _ready(world)
    seen = ProviderSnapshot.of(await world.novita.instance(machine), asked_at=now())
    await world.execute("UPDATE instance SET novita_id = 'another' WHERE id = $1", instance_id)
    snapshot = None if is_gone else replace(seen, status="exited", endpoints=())

    async with world.database.write() as session:
        change = await apply_snapshot(
            session, instance_id, snapshot, machine=machine, asked_at=now(), cause=transitions.Cause()
        )
        missing_for = await note_missing(session, instance_id, machine)

    row = await world.instance(instance_id)
    assert (change, missing_for) == (Correction.NONE, timedelta(0))
    assert (row["status"], row["novita_status"], row["missing_since"]) == (S.READY, seen.status, None)


@pytest.mark.parametrize(
    ("then", "status", "reason"), [("exited", S.EXITED, "STOPPED_OUTSIDE"), ("running", S.READY, None)]
)
async def test_instance_that_is_being_stopped_in_the_console_is_stopping(
    world: World, then: str, status: InstanceStatus, reason: str | None
):
    instance_id, machine = await _ready(world)
    seen = ProviderSnapshot.of(await world.novita.instance(machine), asked_at=now())

    async def look(word: str) -> Correction:
        snapshot = replace(seen, status=word, endpoints=(), asked_at=now())
        async with world.database.write() as session:
            cause = transitions.Cause()
            return await apply_snapshot(
                session, instance_id, snapshot, machine=snapshot.id, asked_at=snapshot.asked_at, cause=cause
            )

    assert await look("stopping") is Correction.NOTED
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["novita_status"]) == (S.STOPPING, "STOPPED_OUTSIDE", "stopping")

    await look(then)
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["novita_status"]) == (status, reason, then)


@pytest.mark.parametrize("word", ["toStop", "stopping", "freezing"])
async def test_words_noted_during_an_operation_do_not_stay_beside_ready(world: World, word: str):
    """An operation that reads the machine writes its word; the status follows when the operation is over."""
    instance_id, machine = await _ready(world)
    await world.execute("UPDATE instance SET novita_status = $1 WHERE id = $2", word, instance_id)
    provider = world.simulator.world
    provider.plan(provider.instance(machine), [(provider.clock.now(), word, "")])
    assert status_of(world, machine) == word

    await reconcile(world.database, world.novita)

    row = await world.instance(instance_id)
    assert (row["status"], row["novita_status"]) == (S.STOPPING, word)


@pytest.mark.parametrize(
    ("word", "status", "kind"),
    [
        ("restarting", S.RESTARTING, "RESTART"),
        ("migrating", S.MIGRATING, "MIGRATE"),
        ("pulling", S.RESTARTING, "RESTART"),
    ],
)
async def test_instance_that_is_restarted_in_the_console_is_followed_to_ready(
    world: World, word: str, status: InstanceStatus, kind: str
):
    instance_id, machine = await _ready(world)
    seen = ProviderSnapshot.of(await world.novita.instance(machine), asked_at=now())
    snapshot = replace(seen, status=word, endpoints=(), asked_at=now())

    async with world.database.write() as session:
        cause = transitions.Cause()
        change = await apply_snapshot(
            session, instance_id, snapshot, machine=snapshot.id, asked_at=snapshot.asked_at, cause=cause
        )

    assert change is Correction.STARTED
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["novita_status"]) == (status, "RESTARTED_OUTSIDE", word)
    await world.work_until_status(instance_id, S.READY)
    last = await world.one("SELECT kind, status, requested_by, reason FROM operation ORDER BY created_at DESC LIMIT 1")
    assert tuple(last) == (kind, "SUCCEEDED", None, "OUTSIDE")


async def test_running_at_the_provider_does_not_take_ready_away(world: World):
    instance_id, machine = await _ready(world)
    snapshot = ProviderSnapshot.of(await world.novita.instance(machine), asked_at=now())

    async with world.database.write() as session:
        await apply_snapshot(
            session, instance_id, snapshot, machine=snapshot.id, asked_at=snapshot.asked_at, cause=transitions.Cause()
        )

    assert (await world.instance(instance_id))["status"] == S.READY


async def test_a_machine_of_an_attempt_declared_absent_is_removed_and_said(world: World):
    accepted = await world.create()
    world.faults(
        Fault(FaultKind.LOST_ANSWER, routes=(CREATE,), times=1),
        Fault(FaultKind.LIST_LAG, routes=(CREATE,), seconds=60, times=1),
    )
    await world.work_once()
    await world.age_attempts()
    await world.hurry()
    await world.work_once()  # the list shows nothing, the grace is over: absent
    await world.work_until_status(accepted.instance.id, S.READY)
    list_all(world)
    assert len(world.machines()) == 2

    report = await reconcile(world.database, world.novita)

    assert report.unlinked[Origin.ORPHAN] == 1
    kept = (await world.instance(accepted.instance.id))["novita_id"]
    await until(lambda: [each.id for each in world.machines()] == [kept])
    assert "instance.orphan_found" in await world.event_types(accepted.instance.id)


async def test_a_machine_whose_attempt_is_still_in_doubt_is_left_to_its_own_job(world: World):
    accepted = await world.create()
    world.faults(Fault(FaultKind.LOST_ANSWER, routes=(CREATE,), times=1))
    await world.work_once()
    assert [status for *_, status, _ in await world.attempts(accepted.operation.id)] == ["UNKNOWN"]

    report = await reconcile(world.database, world.novita)

    assert (report.unlinked, len(world.machines())) == ({Origin.IN_DOUBT: 1}, 1)
    await world.work_until_status(accepted.instance.id, S.READY)


async def test_unmanaged_machines_are_counted_and_never_touched(world: World):
    (machine,) = await make_running(world, 1)
    marked_elsewhere = await make_machine(world, "theirs-pl0123456789abcdef")
    writes = _writes(world)

    report = await reconcile(world.database, world.novita)

    assert report.unlinked == {Origin.UNMANAGED: 2}
    assert _writes(world) == writes
    assert {each.id for each in world.machines()} == {machine, marked_elsewhere}


async def test_a_list_of_several_pages_is_compared_to_its_end(world: World):
    instance_id, machine = await _ready(world)  # the oldest, so on the last page
    await make_running(world, 120)
    await stop_outside(world, machine)

    report = await reconcile(world.database, world.novita)

    assert report.unlinked[Origin.UNMANAGED] == 120
    assert (await world.instance(instance_id))["status"] == S.EXITED


async def test_a_create_without_a_job_ends_and_can_be_deleted(world: World):
    lost = await world.put(S.CREATING)

    report = await reconcile(world.database, world.novita)

    row = await world.instance(lost.id)
    assert (report.lost, row["status"], row["failure_code"]) == (1, S.FAILED, "CREATE_LOST")
    await world.work_until_over(await world.delete(lost.id))
    assert (await world.instance(lost.id))["status"] == S.DELETED


async def test_a_create_with_a_job_is_not_ended(world: World):
    accepted = await world.create()

    report = await reconcile(world.database, world.novita)

    assert (report.lost, (await world.instance(accepted.instance.id))["status"]) == (0, S.CREATING)


async def test_the_job_gives_way_to_a_provider_that_is_away(world: World):
    world.outage()
    await world.enqueue(Reconcile())

    assert await world.work_once() == 1

    assert await world.value("SELECT count(*) FROM job") == 0
    assert await world.value("SELECT status FROM job_history") == "SUCCEEDED"


async def test_a_spot_reclaim_is_reported_in_advance_and_exited_gives_the_reason(world: World):
    instance_id, machine = await _ready(world, spot=True)
    await world.execute("UPDATE instance SET webhook_url = 'http://127.0.0.1:9/'")
    reclaim(world, machine, notice=100)

    await reconcile(world.database, world.novita)

    row = await world.instance(instance_id)
    assert row["status"] == S.READY
    assert row["spot_reclaim_at"] is not None
    assert (await world.event_types(instance_id)).count("spot.reclaim_scheduled") == 1

    await reconcile(world.database, world.novita)
    assert (await world.event_types(instance_id)).count("spot.reclaim_scheduled") == 1
    assert await world.value("SELECT count(*) FROM delivery WHERE event_type = 'spot.reclaim_scheduled'") == 1

    await until(lambda: status_of(world, machine) == "exited")
    await world.work_until_status(instance_id, S.EXITED)  # by the watch that was set for that moment
    row = await world.instance(instance_id)
    assert row["status_reason"] == "SPOT_RECLAIMED"
    assert (await world.event_types(instance_id))[-1] == "instance.exited"


async def test_one_stopped_by_hand_before_its_reclaim_was_not_reclaimed(world: World):
    instance_id, machine = await _ready(world, spot=True)
    reclaim(world, machine, notice=100_000)
    await stop_outside(world, machine)

    await reconcile(world.database, world.novita)

    assert (await world.instance(instance_id))["status_reason"] == "STOPPED_OUTSIDE"


async def test_sync_changes_only_the_callers_own_rows_and_names_the_caller(world: World):
    ours, our_machine = await _ready(world)
    other = await world.new_caller("other")
    accepted = await world.create("theirs", by=other)
    await world.work_until_status(accepted.instance.id, S.READY)
    their_machine = (await world.instance(accepted.instance.id))["novita_id"]
    for machine in (our_machine, their_machine):
        await stop_outside(world, machine)

    cause = transitions.Cause(token_id=world.caller.token_id)
    report = await sync_project(world.database, world.novita, project_id=world.caller.project_id, cause=cause)

    assert (report.compared, report.changes[Correction.STOPPED]) == (1, 1)
    assert (await world.instance(accepted.instance.id))["status"] == S.READY
    assert (await world.events(ours))[-1].caused_by == world.caller.token_id


async def test_an_adopted_machine_is_an_instance_like_any_other(world: World):
    (machine,) = await make_running(world, 1)
    admin = await world.new_caller(role=Role.ADMIN)

    adopted = await adopt_instance(world.database, world.reader, AdoptDraft(machine, "mine"), by=admin)
    assert (adopted.status, adopted.novita_id, adopted.name) == (S.STARTING, machine, "mine")
    await world.work_until_status(adopted.id, S.READY)

    row = await world.instance(adopted.id)
    assert (row["product_name"], row["region"], row["billing_mode"]) == ("RTX 4090 24GB", "AS-SGP-02", "onDemand")
    assert (await reconcile(world.database, world.novita)).unlinked[Origin.UNMANAGED] == 0
    await world.work_until_over(await world.delete(adopted.id))
    assert world.machines() == []


async def test_an_exited_machine_is_adopted_as_exited(world: World):
    (machine,) = await make_running(world, 1)
    await stop_outside(world, machine)

    adopted = await adopt_instance(world.database, world.reader, AdoptDraft(machine), by=world.caller)

    assert (adopted.status, adopted.status_reason) == (S.EXITED, "ADOPTED")
    assert await world.value("SELECT count(*) FROM operation") == 0


@pytest.mark.parametrize("whose", ["nobody's", "ours", "another project's"])
async def test_what_is_not_free_to_be_adopted_is_not_found(world: World, whose: str):
    machine = "0123456789abcdef"
    if whose != "nobody's":
        _, machine = await _ready(world)
    by = await world.new_caller("other") if whose == "another project's" else world.caller
    before = await world.counts()

    with pytest.raises(NotFound):
        await adopt_instance(world.database, world.reader, AdoptDraft(machine, "mine"), by=by)

    assert await world.counts() == before


async def test_adopting_is_refused_for_a_machine_on_its_way_out_and_for_a_taken_name(world: World):
    leaving, staying = await make_running(world, 2)
    await world.put(name="taken")
    with pytest.raises(Invalid, match="Another instance"):
        await adopt_instance(world.database, world.reader, AdoptDraft(staying, "taken"), by=world.caller)
    with pytest.raises(Invalid):
        await adopt_instance(world.database, world.reader, AdoptDraft(staying, ""), by=world.caller)
    world.simulator.world.set_speed(0.001)
    await world.novita.delete_instance(leaving)
    with pytest.raises(IllegalTransition):
        await adopt_instance(world.database, world.reader, AdoptDraft(leaving, "mine"), by=world.caller)


async def test_two_concurrent_adoptions_make_one_instance(world: World):
    (machine,) = await make_running(world, 1)

    async def adopt(name: str) -> object:
        try:
            return await adopt_instance(world.database, world.reader, AdoptDraft(machine, name), by=world.caller)
        except (Refused, NovitaError) as error:
            return error

    results = await asyncio.gather(*(adopt(f"name-{number}") for number in range(8)))

    assert sum(isinstance(result, Refused) for result in results) == 7
    assert await world.value("SELECT count(*) FROM instance") == 1


async def _ready(world: World, *, spot: bool = False, name: str | None = None):
    """An instance of ours that is READY, and its machine."""
    billing = Billing.SPOT if spot else Billing.ON_DEMAND
    accepted = await world.create(name or f"ready-{new_id().hex[-6:]}", billing=billing)
    await world.work_until_status(accepted.instance.id, S.READY)
    return accepted.instance.id, (await world.instance(accepted.instance.id))["novita_id"]


def _writes(world: World) -> int:
    return sum(many for route, many in world.simulator.world.calls.items() if route.startswith("POST"))


@pytest.mark.parametrize("code", [0, 137])
async def test_an_instance_whose_container_ended_by_itself_keeps_the_code_and_the_message(world: World, code: int):
    instance_id, machine = await _ready(world)
    lifecycle.exit_by_itself(world.simulator.world, world.simulator.world.instance(machine), code=code)

    await reconcile(world.database, world.novita)

    message = f"container exited with code {code}"
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == (S.EXITED, "CONTAINER_EXITED")
    assert (row["exit_code"], row["exit_message"]) == (code, message)
    exited = (await world.events(instance_id))[-1]
    assert (exited.type, exited.data["instance"]["exit_code"], exited.data["instance"]["exit_message"]) == (
        "instance.exited",
        code,
        message,
    )

    await ask(world, OperationKind.START, instance_id)
    row = await world.instance(instance_id)
    assert (row["exit_code"], row["exit_message"]) == (None, None)


async def test_a_frozen_instance_says_so(world: World):
    instance_id, machine = await _ready(world)
    lifecycle.freeze(world.simulator.world, world.simulator.world.instance(machine))
    await reconcile(world.database, world.novita)
    await until(lambda: status_of(world, machine) == "exited")

    await reconcile(world.database, world.novita)

    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == (S.EXITED, "FROZEN")
