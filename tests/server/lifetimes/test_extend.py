"""Extensions move ends to later times only, and an accepted one always holds."""

import asyncio
import json
import os
import random
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from server.clock import now
from server.enums import InstanceStatus, OperationKind, Role
from server.errors import Invalid, KeyReused, LifetimeAbovePolicy, NotFound, Refused, VersionConflict
from server.instances import transitions
from server.instances.commands.lifecycle import Target, accept
from server.instances.limits import arming
from server.instances.limits.policy import Policy, set_policy
from server.instances.limits.spec import Idle, Lifetime, read
from server.instances.provider.drift import apply_snapshot
from server.instances.provider.snapshot import ProviderSnapshot
from server.lifetimes.extend import Extension, extend_lifetime
from server.lifetimes.heartbeat import Heartbeats
from tests.server.lifetimes.conftest import Ready, age, jobs, lifetime_events, run_step
from tests.support.world import World

# More by LIFETIME_RACES=1000; so many fit into every run.
RACES = int(os.environ.get("LIFETIME_RACES", "25"))
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


async def extend(world: World, instance_id: UUID, **extension: object):
    given = Extension(**extension)  # type: ignore[arg-type]
    extended = await extend_lifetime(world.database, Target(instance_id), given, by=world.caller)
    assert extended.row is not None
    return extended.row


async def test_extension_moves_the_end_and_its_job(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    before = await world.instance(instance_id)
    extended = await extend(world, instance_id, by=HOUR)
    assert extended.lifetime_due_at == before["lifetime_due_at"] + HOUR
    assert (extended.version, extended.heartbeat_at is not None) == (before["version"] + 1, True)
    assert await world.value("SELECT run_at FROM job WHERE unique_key LIKE 'lifetime%'") > now() + HOUR
    assert [type for type, _ in await lifetime_events(world, instance_id)] == ["lifetime.extended"]

    until = now() + 10 * HOUR
    assert (await extend(world, instance_id, until=until)).lifetime_due_at == until
    assert (await extend(world, instance_id, until=now() + HOUR)).lifetime_due_at == until  # never shorter
    assert await world.value("SELECT count(*) FROM operation") == 1  # the create


async def test_extension_moves_a_deadline_and_a_duration_together(world: World, ready: Ready):
    instance_id = await ready(max_duration=2 * HOUR, deadline=now() + HOUR)
    until = now() + 3 * HOUR
    extended = await extend(world, instance_id, until=until)
    assert extended.lifetime_due_at == until
    await age(world, instance_id, 3 * HOUR - MINUTE)
    await run_step(world, instance_id)
    assert (await world.instance(instance_id))["status"] == "READY"


async def test_extension_before_the_machine_exists_adds_to_its_duration(world: World):
    accepted = await world.create("new", lifetime=Lifetime(max_duration=HOUR))
    await extend(world, accepted.instance.id, by=HOUR)
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    row = await world.instance(accepted.instance.id)
    assert row["lifetime_due_at"] == row["run_accepted_at"] + 2 * HOUR


async def test_second_extension_before_the_machine_exists_goes_on_from_the_first(world: World):
    accepted = await world.create("new", lifetime=Lifetime(max_duration=HOUR))
    until = now() + 5 * HOUR
    await extend(world, accepted.instance.id, until=until)
    await extend(world, accepted.instance.id, by=HOUR)
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert (await world.instance(accepted.instance.id))["lifetime_due_at"] == until + HOUR


async def test_extension_before_the_machine_exists_does_not_stretch_its_duration_to_a_later_deadline(world: World):
    deadline = now() + 30 * 24 * HOUR
    accepted = await world.create("new", lifetime=Lifetime(max_duration=HOUR, deadline=deadline))
    await extend(world, accepted.instance.id, by=HOUR)
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    row = await world.instance(accepted.instance.id)
    assert (row["lifetime_due_at"], row["lifetime_reason"]) == (row["run_accepted_at"] + 2 * HOUR, "MAX_DURATION")
    assert read(json.loads(row["lifetime"])).deadline == deadline


@pytest.mark.parametrize("deadline", [90 * MINUTE, 30 * MINUTE])
async def test_extension_before_the_machine_exists_moves_a_deadline_that_would_cut_it(
    world: World, deadline: timedelta
):
    at = now() + deadline
    earliest = min(now() + HOUR, at)
    accepted = await world.create("new", lifetime=Lifetime(max_duration=HOUR, deadline=at))
    await extend(world, accepted.instance.id, by=HOUR)
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    due_at = (await world.instance(accepted.instance.id))["lifetime_due_at"]
    assert earliest + HOUR <= due_at < earliest + HOUR + 5 * MINUTE


async def test_extension_counts_as_a_heartbeat_and_as_busy(world: World, ready: Ready):
    instance_id = await ready(heartbeat=HOUR, idle=Idle(grace=timedelta(0)))
    await age(world, instance_id, 50 * MINUTE)
    extended = await extend(world, instance_id, by=MINUTE)
    assert extended.lifetime_due_at is not None
    assert extended.lifetime_due_at > now() + 29 * MINUTE


@pytest.mark.parametrize("extension", [{}, {"by": HOUR, "until": "later"}, {"until": "past"}, {"by": timedelta(0)}])
async def test_contradictory_extensions_are_refused(world: World, ready: Ready, extension: dict[str, object]):
    instance_id = await ready(max_duration=HOUR)
    times = {"later": now() + HOUR, "past": now() - HOUR}
    before = await world.instance(instance_id)
    with pytest.raises(Invalid, match=r"."):
        await extend(world, instance_id, **{name: times.get(str(each), each) for name, each in extension.items()})
    assert await world.instance(instance_id) == before


async def test_extension_to_a_time_before_the_end_moves_nothing_and_announces_the_end(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    before = await world.instance(instance_id)
    await extend(world, instance_id, until=now() + HOUR / 2)
    after = await world.instance(instance_id)
    assert after["lifetime_due_at"] == before["lifetime_due_at"]
    [(type, values)] = await lifetime_events(world, instance_id)
    assert (type, datetime.fromisoformat(values["at"])) == ("lifetime.extended", before["lifetime_due_at"])


async def test_a_repeated_extension_moves_the_end_once(world: World, ready: Ready):
    instance_id, other = await ready(max_duration=HOUR), await ready("two", max_duration=HOUR)
    before = await world.instance(instance_id)

    async def send(target: Target, *, key: str = "k", **extension: object):
        given = Extension(**{"by": HOUR, **extension})  # type: ignore[arg-type]
        return await extend_lifetime(world.database, target, given, by=world.caller, key=key)

    at_once = await asyncio.gather(*(send(Target(instance_id)) for _ in range(6)))
    assert sorted(each.replayed for each in at_once) == [False, *[True] * 5]
    moved = before["lifetime_due_at"] + HOUR
    assert {each.row and each.row.lifetime_due_at for each in at_once} == {moved}
    assert [type for type, _ in await lifetime_events(world, instance_id)] == ["lifetime.extended"]
    by_name = [await send(Target(name="one"), key="n") for _ in range(2)]
    assert [each.replayed for each in by_name] == [False, True]

    for wrong in (send(Target(other)), send(Target(instance_id), by=2 * HOUR)):
        with pytest.raises(KeyReused):
            await wrong
    with pytest.raises(Invalid):
        await send(Target(instance_id), key="")
    assert (await world.instance(instance_id))["lifetime_due_at"] == moved + HOUR


async def test_a_refused_extension_leaves_its_key_free(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    for until, is_refused in ((now() - HOUR, True), (now() + 9 * HOUR, False)):
        given = Extension(until=until)
        if is_refused:
            with pytest.raises(Invalid):
                await extend_lifetime(world.database, Target(instance_id), given, by=world.caller, key="k")
            continue
        extended = await extend_lifetime(world.database, Target(instance_id), given, by=world.caller, key="k")
        assert (extended.replayed, extended.row and extended.row.lifetime_due_at) == (False, until)


async def test_other_refusals(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    stranger = await world.new_caller("other")
    with pytest.raises(NotFound):
        await extend_lifetime(world.database, Target(instance_id), Extension(by=HOUR), by=stranger)
    with pytest.raises(VersionConflict):
        await extend(world, instance_id, by=HOUR, expected_version=1)
    unlimited = await world.put(InstanceStatus.READY)
    with pytest.raises(Invalid, match="no lifetime"):
        await extend(world, unlimited.id, by=HOUR)
    admin = await world.new_caller(role=Role.ADMIN)
    async with world.database.write() as session:
        await set_policy(session, admin.project_id, Policy(max_duration_at_most=2 * HOUR))
    with pytest.raises(LifetimeAbovePolicy):
        await extend(world, instance_id, by=2 * HOUR)
    await extend(world, instance_id, by=HOUR)


async def test_extension_after_the_end_was_accepted_is_refused(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR)
    await run_step(world, instance_id)
    with pytest.raises(Refused) as refused:
        await extend(world, instance_id, by=HOUR)
    assert refused.value.code == "LIFETIME_OVER"


async def test_restart_that_follows_the_provider_is_no_end_and_may_be_extended(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    row = await world.instance(instance_id)
    seen = ProviderSnapshot.of(await world.novita.instance(row["novita_id"]), asked_at=now())
    restarting = replace(seen, status="restarting", endpoints=())
    async with world.database.write() as session:
        await apply_snapshot(
            session, instance_id, restarting, machine=restarting.id, asked_at=now(), cause=transitions.Cause()
        )
    operations = await world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL")

    assert (await extend(world, instance_id, by=HOUR)).lifetime_due_at == row["lifetime_due_at"] + HOUR
    assert (operations, await world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL")) == (1, 1)


async def test_start_after_the_deadline_is_refused_until_it_is_extended(world: World, ready: Ready):
    instance_id = await ready(deadline=now() + HOUR)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    await age(world, instance_id, HOUR)
    with pytest.raises(Refused) as refused:
        await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller)
    assert refused.value.code == "LIFETIME_OVER"

    await extend(world, instance_id, by=HOUR)
    await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.READY)


async def test_extension_and_end_race_and_the_answer_holds(world: World):
    """Both take the row's lock: an accepted extension is not followed by the end, a refused one is."""
    for number in range(RACES):
        instance = await world.put(
            InstanceStatus.READY,
            name=f"race-{number}",
            novita_id=f"m-{number}",
            run_accepted_at=now() - HOUR,
            lifetime=Lifetime(max_duration=HOUR).to_json(),
            lifetime_due_at=now() - MINUTE,
        )
        async with world.database.write() as session:
            await arming.keep(session, await transitions.lock(session, instance.id))

        async def extended(instance_id: UUID = instance.id) -> bool:
            await asyncio.sleep(random.uniform(0, 0.02))
            try:
                await extend(world, instance_id, by=HOUR)
            except Refused as refused:
                return refused.code != "LIFETIME_OVER"
            return True

        answer, _ = await asyncio.gather(extended(), world.work_once())
        status = await world.value("SELECT status FROM instance WHERE id = $1", instance.id)
        assert (answer, status) in ((True, "READY"), (False, "STOPPING"))
        assert await jobs(world, instance.id) == (1 if answer else 0)
        await world.execute("DELETE FROM job WHERE kind = 'STOP_INSTANCE'")


async def test_heartbeats_write_one_column(world: World, ready: Ready):
    instance_id = await ready(heartbeat=HOUR)
    other = await world.put(InstanceStatus.READY)
    before, events = await world.instance(instance_id), await world.event_types(instance_id)
    heartbeats = Heartbeats(world.database)
    beats = await asyncio.gather(*(heartbeats.beat(each, by=world.caller) for each in (instance_id, other.id) * 5))
    after = await world.instance(instance_id)
    assert {name for name in dict(before) if before[name] != after[name]} == {"heartbeat_at"}
    assert await world.event_types(instance_id) == events
    assert beats[0].next_at is not None
    assert beats[0].next_at <= after["heartbeat_at"] + HOUR
    assert beats[1].next_at is None
    with pytest.raises(NotFound):
        await heartbeats.beat(instance_id, by=await world.new_caller("other"))
