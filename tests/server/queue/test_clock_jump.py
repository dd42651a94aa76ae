"""The database's clock was an hour ahead for a moment: nothing that was written meanwhile waits for that hour.

The rows are made as they are then: PostgreSQL's clock can't be set without setting the machine's.
"""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from server.queue.claim import Claim
from server.queue.handler import Again, Outcome
from server.queue.schedule import Recurring, declare, fire_due
from tests.server.queue.conftest import Chore, Note, World
from tests.support.waiting import until

AHEAD = "UPDATE job SET run_at = run_at + interval '1 hour', due_at = due_at + interval '1 hour'"
LEFT = "SELECT extract(epoch FROM run_at - now())::float8 FROM job ORDER BY run_at DESC LIMIT 1"


async def slow(_work: Any, _claim: Claim) -> Outcome:
    return Again(timedelta(minutes=10))


async def test_job_added_by_a_clock_that_was_ahead_runs_now(world: World):
    await world.enqueue(Note("now"))
    await world.enqueue(Chore("in ten minutes"), after=timedelta(minutes=10))
    await world.execute(AHEAD)

    world.start()
    await until(lambda: world.ran)

    assert world.ran == ["now"]
    assert 500 < await world.value(LEFT) <= 600


async def test_job_rescheduled_by_a_clock_that_was_ahead_waits_for_its_own_pause(world: World):
    await world.enqueue(Note())
    await world.worker(slow).work_once()
    await world.execute(AHEAD)

    world.start(slow)

    async def is_shortened() -> bool:
        return await world.value(LEFT) <= 600

    await until(is_shortened)
    assert await world.value(LEFT) > 500
    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)]


async def test_lease_of_a_worker_that_died_while_the_clock_was_ahead_ends_in_time(world: World):
    await world.enqueue(Note("left"))
    dead = uuid4()
    await world.execute(
        "INSERT INTO job_worker (id, name, lease_until, lease) VALUES ($1, 'dead', now() + interval '1 hour', '1 s')",
        dead,
    )
    await world.execute(
        "UPDATE job SET status = 'RUNNING', claim = 1, worker_id = $1, claimed_at = now() + interval '1 hour'", dead
    )

    world.start()

    await until(lambda: world.ran == ["left"])


async def test_schedule_moved_by_a_clock_that_was_ahead_is_due(world: World):
    recurring = [Recurring(Note(), every=timedelta(minutes=5))]
    await declare(world.database, recurring)
    assert await fire_due(world.database, recurring) == 0
    await world.execute("UPDATE job_schedule SET next_at = next_at + interval '1 hour'")

    assert await fire_due(world.database, recurring) == 1

    left = await world.value("SELECT extract(epoch FROM next_at - now())::float8 FROM job_schedule")
    assert 0 < left <= 300
