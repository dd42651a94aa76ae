"""Jobs that come back by the clock, once per cluster however many processes run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text

from server.db.engine import Database
from server.queue.enqueue import enqueue
from server.queue.kinds import Work


@dataclass(frozen=True, slots=True)
class Recurring:
    """This work, that often. The first time is one interval after the schedule was first seen."""

    work: Work
    every: timedelta


DECLARE = text("""
    INSERT INTO job_schedule (kind, every, next_at) VALUES (:kind, :every, now() + :every)
    ON CONFLICT (kind) DO UPDATE
    SET every = excluded.every, next_at = least(job_schedule.next_at, excluded.next_at)
    WHERE job_schedule.every <> excluded.every
""")

# Of all processes that try, one moves `next_at`; the others wait for its row and then find nothing due.
# Times missed while nobody ran are not made up for: next_at goes to the first one ahead.
FIRE = text("""
    UPDATE job_schedule
    SET next_at = next_at + every * (1 + floor(extract(epoch FROM now() - next_at) / extract(epoch FROM every)))
    WHERE kind = :kind AND next_at <= now()
    RETURNING kind
""")

NEXT = text("SELECT min(next_at) - clock_timestamp() FROM job_schedule WHERE kind = ANY(:kinds)")


async def declare(database: Database, recurring: Sequence[Recurring]) -> None:
    """Write down what recurs. A changed interval counts from now."""
    async with database.write() as session:
        for each in sorted(recurring, key=lambda each: each.work.kind):
            await session.execute(DECLARE, {"kind": each.work.kind, "every": each.every})


async def fire_due(database: Database, recurring: Sequence[Recurring]) -> int:
    """Enqueue what is due, unless its last one is not over yet; return how many were due."""
    fired = 0
    for each in recurring:
        async with database.write() as session:
            due = (await session.execute(FIRE, {"kind": each.work.kind})).first()
            if due is not None:
                await enqueue(session, each.work, unique_key=f"recurring {each.work.kind}")
                fired += 1
    return fired


async def next_in(database: Database, recurring: Sequence[Recurring]) -> timedelta:
    """How long until the next one is due."""
    async with database.read() as session:
        left: timedelta | None = await session.scalar(NEXT, {"kinds": [each.work.kind for each in recurring]})
    return max(left or timedelta(0), timedelta(0))
