"""The estimates of creates that wait in line follow the line's speed."""

from datetime import timedelta

from server.clock import now
from server.instances.idempotency import Accepted
from server.jobs.registry import all_handlers
from server.queue.kinds import UpdateEstimates
from server.queue.worker import Worker
from tests.support.world import World

USUAL = timedelta(minutes=4)  # while there is no history: ESTIMATED_READY_TIME


async def test_a_line_that_became_slower_moves_the_estimates_of_those_that_wait(world: World):
    first, last = [await world.create(f"waits-{number}") for number in range(30)][::29]
    await slow_line(world, creates_per_second=0.05)

    await run(world)

    assert await estimate(world, first) == first.instance.estimated_ready_at  # it is next, so nothing has changed
    assert await left(world, last) - USUAL > timedelta(seconds=29 / 0.05 - 30)
    row = await world.operation(last.operation.id)
    assert row["estimated_ready_at"] == await estimate(world, last)
    assert (await world.event_types(last.instance.id))[-2:] == ["operation.changed", "instance.changed"]


async def test_an_estimate_that_is_right_is_not_written_again(world: World):
    accepted = [await world.create(f"waits-{number}") for number in range(3)]
    await slow_line(world, creates_per_second=0.05)
    await run(world)
    versions = [(await world.instance(each.instance.id))["version"] for each in accepted]

    await run(world)

    assert [(await world.instance(each.instance.id))["version"] for each in accepted] == versions


async def test_an_estimate_that_has_passed_moves_on_and_one_that_is_being_deleted_does_not(world: World):
    late, deleted = await world.create("late"), await world.create("deleted")
    await world.execute("UPDATE instance SET estimated_ready_at = now() - interval '1 hour'")
    await world.delete(deleted.instance.id)

    await run(world)

    assert await left(world, late) > timedelta(minutes=3)
    assert await left(world, deleted) < timedelta(0)


async def slow_line(world: World, *, creates_per_second: float) -> None:
    """As after a minute in which few creates had a turn."""
    await world.execute("UPDATE job SET created_at = created_at - interval '1 minute'")
    await world.execute(
        "INSERT INTO provider_budget (version, rate, tokens, at, lowered_at, own, used)"
        " VALUES (1, 1, 0, 0, 0, '{0,0,0,0,0}', ARRAY[0, 0, 0, 0, $1::float8])",
        creates_per_second,
    )


async def run(world: World) -> None:
    """One run of the job, while all creates wait."""
    await world.configure(novita_rate_limit=60)
    handlers = {UpdateEstimates.kind: all_handlers(world.services_with(world.novita))[UpdateEstimates.kind]}
    await world.enqueue(UpdateEstimates())
    assert await world.work_once(Worker(world.database, world.notifier, handlers)) == 1


async def estimate(world: World, accepted: Accepted) -> object:
    return (await world.instance(accepted.instance.id))["estimated_ready_at"]


async def left(world: World, accepted: Accepted) -> timedelta:
    return (await world.instance(accepted.instance.id))["estimated_ready_at"] - now()
