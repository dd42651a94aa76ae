"""The table of transitions, and the one function that writes them."""

import asyncio
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.clock import new_id
from server.enums import InstanceStatus
from server.errors import IllegalTransition, NotFound
from server.instances import transitions
from server.instances.status import TRANSITIONS, sources
from server.instances.transitions import Cause
from tests.support.world import World

S = InstanceStatus
NO_CAUSE = Cause()
ILLEGAL = [(source, to) for source in S for to in S if to not in TRANSITIONS[source]]


async def change(world: World, instance_id: UUID, to: InstanceStatus) -> None:
    fields = {"failure_code": "BROKEN"} if to is S.FAILED else {}
    async with world.database.write() as session:
        await transitions.transition(session, instance_id, to, cause=NO_CAUSE, **fields)


def test_every_status_has_a_row_in_the_table():
    assert set(TRANSITIONS) == set(S)


def test_the_sources_of_a_status_are_the_rows_that_lead_there():
    assert {(source, to) for to in S for source in sources(to)} == {
        (s, to) for s, targets in TRANSITIONS.items() for to in targets
    }


def test_ready_never_goes_back_to_running_and_deleted_goes_nowhere():
    assert S.RUNNING not in TRANSITIONS[S.READY]
    assert TRANSITIONS[S.DELETED] == frozenset()


def test_everything_that_is_not_deleted_can_be_deleted():
    assert {status for status in S if S.DELETING in TRANSITIONS[status]} == set(S) - {S.DELETING, S.DELETED}


def test_every_status_has_its_event():
    assert set(transitions.EVENT_OF) == set(S)
    assert len(set(transitions.EVENT_OF.values())) == len(S)


async def test_an_illegal_transition_is_refused_and_changes_nothing(world: World):
    rows = {status: (await world.put(status)).id for status in S}
    before = await world.rows("SELECT * FROM instance ORDER BY id")

    for source, to in ILLEGAL:
        with pytest.raises(IllegalTransition) as refused:
            await change(world, rows[source], to)
        assert (refused.value.code, refused.value.current) == ("INVALID_TRANSITION", source)
        assert set(refused.value.allowed) == set(TRANSITIONS[source])

    assert await world.rows("SELECT * FROM instance ORDER BY id") == before
    assert await world.value("SELECT count(*) FROM outbox") == 0


async def test_an_instance_that_does_not_exist_is_not_found(world: World):
    with pytest.raises(NotFound):
        await change(world, new_id(), S.DELETING)


async def test_a_transition_increments_the_version_and_writes_an_event_with_a_snapshot(world: World):
    instance = await world.put(S.READY, env={"TOKEN": "s3cret"})
    operation_id = new_id()

    async with world.database.write() as session:
        cause = Cause(operation_id, world.caller.token_id)
        after = await transitions.transition(
            session, instance.id, S.EXITED, cause=cause, status_reason="SPOT_RECLAIMED"
        )

    assert (after.status, after.version) == ("EXITED", 2)
    (event,) = await world.events(instance.id)
    assert (event.type, event.operation_id, event.caused_by) == ("instance.exited", operation_id, world.caller.token_id)
    assert (event.data["from"], event.data["to"]) == ("READY", "EXITED")
    assert event.data["instance"]["version"] == 2
    assert event.data["instance"]["status_reason"] == "SPOT_RECLAIMED"
    assert "env" not in event.data["instance"]


async def test_of_eight_concurrent_transitions_one_succeeds(world: World):
    instance = await world.put(S.READY)

    results = await asyncio.gather(*(change(world, instance.id, S.STOPPING) for _ in range(8)), return_exceptions=True)

    assert [type(each) for each in results if each is not None] == [IllegalTransition] * 7
    row = await world.instance(instance.id)
    assert (row["status"], row["version"]) == ("STOPPING", 2)
    assert await world.event_types(instance.id) == ["instance.stopping"]


class Abort(Exception):
    pass


async def test_a_transition_and_its_event_are_rolled_back_together(world: World):
    instance = await world.put(S.READY)

    async def transition_and_fail() -> None:
        async with world.database.write() as session:
            await transitions.transition(session, instance.id, S.STOPPING, cause=NO_CAUSE)
            raise Abort

    with pytest.raises(Abort):
        await transition_and_fail()

    row = await world.instance(instance.id)
    assert (row["status"], row["version"]) == ("READY", 1)
    assert await world.event_types(instance.id) == []


async def test_running_at_and_ready_at_are_set_once_per_run(world: World):
    instance = await world.put(S.EXITED)
    times = []
    for to in (S.STARTING, S.RUNNING, S.HEALTH_CHECKING, S.READY, S.EXITED, S.STARTING, S.RUNNING, S.READY):
        await change(world, instance.id, to)
        row = await world.instance(instance.id)
        times.append((to, row["running_at"], row["ready_at"]))

    first_running, first_ready = times[1][1], times[3][2]
    assert times[0][1:] == (None, None)
    assert first_running is not None
    assert times[2][1:] == (first_running, None)
    assert times[3][1:] == (first_running, first_ready)
    assert times[4][1:] == (first_running, first_ready)
    assert times[5][1:] == (None, None)  # the next run
    assert times[6][1] > first_running
    assert times[7][2] > first_ready


async def test_a_run_that_failed_and_recovered_keeps_the_time_it_first_ran(world: World):
    instance = await world.put(S.RUNNING)
    began = (await world.instance(instance.id))["running_at"]

    await change(world, instance.id, S.FAILED)
    await change(world, instance.id, S.RUNNING)

    row = await world.instance(instance.id)
    assert row["running_at"] == began
    assert row["failure_code"] is None


async def test_an_update_without_a_transition_writes_an_event_only_if_something_changed(world: World):
    instance = await world.put(S.READY, novita_status="running")

    async with world.database.write() as session:
        await transitions.update(session, instance.id, cause=NO_CAUSE, novita_status="running")
        await transitions.update(session, instance.id, cause=NO_CAUSE, novita_status="freezing", region="AS-SGP-02")

    row = await world.instance(instance.id)
    assert (row["status"], row["version"], row["novita_status"]) == ("READY", 2, "freezing")
    (event,) = await world.events(instance.id)
    assert event.type == "instance.changed"
    assert event.data["changed"] == ["novita_status", "region"]


async def test_the_events_of_an_instance_come_in_the_order_of_its_versions(world: World):
    instance = await world.put(S.READY, novita_status="0")

    async def note(number: int) -> None:
        async with world.database.write() as session:
            await transitions.update(session, instance.id, cause=NO_CAUSE, novita_status=str(number))

    await asyncio.gather(*(note(number) for number in range(1, 21)))

    versions = [event.data["instance"]["version"] for event in await world.events(instance.id)]
    assert versions == list(range(2, 22))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(targets=st.lists(st.sampled_from(list(S)), min_size=1, max_size=12))
async def test_only_legal_transitions_are_in_the_log(world: World, targets: list[InstanceStatus]):
    instance = await world.put(S.CREATING)
    current, accepted = S.CREATING, []
    for to in targets:
        try:
            await change(world, instance.id, to)
        except IllegalTransition:
            continue
        accepted.append((current, to))
        current = to

    events = await world.events(instance.id)
    assert [(S(each.data["from"]), S(each.data["to"])) for each in events] == accepted
    assert all(after in TRANSITIONS[before] for before, after in accepted)
    assert [each.data["instance"]["version"] for each in events] == list(range(2, len(accepted) + 2))
    assert (await world.instance(instance.id))["status"] == current
