"""The line of creates: what is promised, and when it is full."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from server.clock import new_id, now
from server.errors import QueueFull
from server.instances.create_line import USUAL_PART, CreateLine
from server.queue.enqueue import enqueue_many
from server.queue.kinds import CreateInstance
from tests.support.world import World

LIMIT = 60  # one call a second


async def wait_in_line(world: World, project: UUID, many: int) -> list[UUID]:
    ids = [new_id() for _ in range(many)]
    async with world.database.write() as session:
        await enqueue_many(session, [CreateInstance(each, new_id()) for each in ids], project_id=project)
    return ids


def turns(many: int) -> timedelta:
    return timedelta(seconds=many / USUAL_PART)


async def test_a_create_waits_for_its_projects_earlier_ones_and_as_many_of_every_other(world: World):
    greedy, modest = uuid4(), uuid4()
    await wait_in_line(world, greedy, 30)
    await wait_in_line(world, modest, 2)
    line = CreateLine(world.database, rate_limit=LIMIT)

    assert await line.join(greedy) == turns(30 + 2)
    assert await line.join(modest) == turns(2 + 3)
    assert await line.join(uuid4()) == turns(0 + 1 + 1)
    assert await CreateLine(world.database).join(greedy) == timedelta(0)  # without a limit


async def test_a_place_counts_only_the_creates_of_its_own_project(world: World):
    await wait_in_line(world, uuid4(), 30)
    ids = await wait_in_line(world, uuid4(), 3)
    line = CreateLine(world.database, rate_limit=LIMIT)

    places = await line.places([*ids, new_id()])

    assert [places[each].position for each in ids] == [1, 2, 3]
    assert len(places) == 3
    assert abs(places[ids[2]].starts_at - now() - turns(2 + 3)) < timedelta(seconds=5)


async def test_a_create_that_has_begun_has_no_place(world: World):
    (begun, waiting) = await wait_in_line(world, uuid4(), 2)
    await world.execute(
        "UPDATE job SET status = 'RUNNING', claim = 1, worker_id = gen_random_uuid(), claimed_at = now()"
        " WHERE instance_id = $1",
        begun,
    )

    places = await CreateLine(world.database, rate_limit=LIMIT).places([begun, waiting])

    assert {each: place.position for each, place in places.items()} == {waiting: 1}


async def test_the_measured_speed_counts_once_the_line_was_busy_for_a_while(world: World):
    project = uuid4()
    await wait_in_line(world, project, 10)
    await world.execute("UPDATE job SET created_at = created_at - interval '1 minute'")
    await world.execute(
        "INSERT INTO provider_budget (version, rate, tokens, at, lowered_at, own, used)"
        " VALUES (1, 1, 0, 0, 0, '{0,0,0,0,0}', '{0,0,0,0,0.25}')"
    )

    assert await CreateLine(world.database, rate_limit=LIMIT).join(project) == timedelta(seconds=40)


async def test_reads_of_users_and_a_lowered_rate_slow_the_line_down(world: World):
    project = uuid4()
    await world.execute(
        "INSERT INTO provider_budget (version, rate, tokens, at, lowered_at, own, used)"
        " VALUES (1, 0.8, 0, extract(epoch FROM clock_timestamp()), 0, '{0,0,0,0,0}', '{0,0.2,0,0,0}')"
    )
    await wait_in_line(world, project, 10)
    waits = await CreateLine(world.database, rate_limit=LIMIT).join(project)
    await world.execute("UPDATE provider_budget SET used = '{0,9,0,0,0}'")
    longest = await CreateLine(world.database, rate_limit=LIMIT).join(project)

    assert waits.total_seconds() == pytest.approx(10 / (0.8 * USUAL_PART - 0.2), rel=0.05)
    assert longest == timedelta(seconds=10 / (0.8 * 0.2))  # their own share is left to creates


async def test_a_full_line_refuses_and_says_when_to_try_again(world: World):
    full, other = uuid4(), uuid4()
    await wait_in_line(world, full, 20)
    line = CreateLine(world.database, rate_limit=LIMIT, pending_max=20)

    with pytest.raises(QueueFull) as refused:
        await line.join(full)

    assert refused.value.retry_after == turns(2)
    assert await line.join(other) == turns(1)
