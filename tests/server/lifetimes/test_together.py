"""Steps that are due at the same time share a transaction, and none of them hinders another."""

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from server.clock import new_id, now
from server.enums import InstanceStatus
from server.errors import LostClaim
from server.instances import transitions
from server.instances.limits import arming
from server.instances.limits.spec import Lifetime
from server.lifetimes.together import StepBatcher
from server.queue.claim import Claim
from tests.server.lifetimes.conftest import Ready, age, jobs, last_operation, lifetime_events
from tests.support.waiting import until
from tests.support.world import World

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
DUE_NOW = "UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'END_LIFETIME'"
# What differs between two instances anyway.
OWN = {"id", "instance_id", "name", "novita_id", "before"}


async def status(world: World, instance_id: UUID) -> str:
    return (await world.instance(instance_id))["status"]


async def due(world: World, name: str) -> UUID:
    """A READY instance whose end is due. How a create comes to be READY takes more or fewer changes from run to run, so
    the row is written as it is: all rows are the same, but for their names."""
    instance = await world.put(
        InstanceStatus.READY,
        name=name,
        novita_id=name,
        run_accepted_at=now() - HOUR,
        lifetime=Lifetime(max_duration=HOUR).to_json(),
        lifetime_state={},
        lifetime_due_at=now() - MINUTE,
    )
    async with world.database.write() as session:
        await arming.keep(session, await transitions.lock(session, instance.id))
    return instance.id


async def story(world: World, instance_id: UUID) -> list[Any]:
    """The rows of an end, without ids and times."""
    operation = await world.one("SELECT * FROM operation WHERE instance_id = $1 AND kind = 'STOP'", instance_id)
    job = "SELECT kind, priority, status, unique_key, project_id FROM job WHERE instance_id = $1 ORDER BY id"
    jobs = [tuple(row) for row in await world.rows(job, instance_id)]
    events = [(each.type, sorted(each.data)) for each in await world.events(instance_id)]
    return [_plain(await world.instance(instance_id)), _plain(operation), jobs, events]


def _plain(row: asyncpg.Record) -> dict[str, Any]:
    plain = {name: "a time" if isinstance(value, datetime) else value for name, value in dict(row).items()}
    state = {"lifetime_state": sorted(json.loads(plain["lifetime_state"]))} if "lifetime_state" in plain else {}
    return {name: value for name, value in (plain | state).items() if name not in OWN}


async def test_end_whose_row_is_locked_delays_no_other_and_is_written_alone_alike(world: World):
    held, free = await due(world, "held"), await due(world, "free")
    await world.execute(DUE_NOW)

    async with world.database.write() as session:
        connection = await session.connection()
        await connection.exec_driver_sql(f"SELECT FROM instance WHERE id = '{held}' FOR UPDATE")
        working = asyncio.create_task(world.work_once())
        await until(lambda: _is(world, free, "STOPPING"))
        assert await status(world, held) == "READY"
    await working

    assert await status(world, held) == "STOPPING"
    assert await story(world, held) == await story(world, free)


async def _is(world: World, instance_id: UUID, wanted: str) -> bool:
    return await status(world, instance_id) == wanted


async def test_ends_and_announcements_that_are_due_together_share_a_transaction(world: World, ready: Ready):
    ends = [await ready(f"end-{number}", max_duration=HOUR) for number in range(2)]
    announced = await ready("announced", max_duration=HOUR)
    for each in ends:
        await age(world, each, HOUR)
    await age(world, announced, HOUR - 5 * MINUTE)
    await world.execute(DUE_NOW)

    await world.work_once()

    for each in ends:
        row = await world.instance(each)
        assert (row["status"], row["status_reason"], row["lifetime_due_at"]) == ("STOPPING", "MAX_DURATION", None)
        assert await last_operation(world, each) == ("STOP", "LIFETIME", None)
        assert [(type, values["outcome"]) for type, values in await lifetime_events(world, each)] == [
            ("lifetime.ended", "ACCEPTED")
        ]
        assert await jobs(world, each) == 0
    assert await status(world, announced) == "READY"
    assert [type for type, _ in await lifetime_events(world, announced)] == ["lifetime.ending"]
    assert await jobs(world, announced) == 1
    assert await world.value("SELECT count(DISTINCT xmin::text) FROM instance") == 1


async def test_limits_that_can_not_be_read_fail_alone(world: World, ready: Ready):
    broken, whole = await ready("broken", max_duration=HOUR), await ready("whole", max_duration=HOUR)
    for each in (broken, whole):
        await age(world, each, HOUR)
    await world.execute("""UPDATE instance SET lifetime = '{"max_duration": "soon"}' WHERE id = $1""", broken)
    await world.execute(DUE_NOW)

    await world.work_once()

    assert (await status(world, broken), await status(world, whole)) == ("READY", "STOPPING")
    kept = "SELECT attempts FROM job WHERE kind = 'END_LIFETIME'"
    assert [row["attempts"] for row in await world.rows(kept)] == [1]


async def test_run_that_has_lost_its_claim_writes_nothing(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR)
    job = await world.one("SELECT id, project_id FROM job WHERE kind = 'END_LIFETIME'")
    claim = Claim(world.database, job["id"], "END_LIFETIME", 1, job["project_id"], instance_id, 1, MINUTE)

    with pytest.raises(LostClaim):
        await StepBatcher(world.database, retry=MINUTE).take(claim, instance_id)

    assert await status(world, instance_id) == "READY"
    assert await jobs(world, instance_id) == 1
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'STOP'") == 0


async def test_instance_that_does_not_exist_is_left_to_its_own_run(world: World):
    gone = new_id()
    await world.execute(
        "INSERT INTO job (kind, args, priority, unique_key, run_at, due_at)"
        " VALUES ('END_LIFETIME', jsonb_build_object('instance_id', $1::uuid), 0, 'lifetime ' || $1, now(), now())",
        gone,
    )

    await world.work_once()

    assert await world.value("SELECT status FROM job_history WHERE kind = 'END_LIFETIME'") == "SUCCEEDED"
