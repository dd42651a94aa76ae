"""Recurring jobs: enqueued once per interval, however many processes run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text

from server.db.database import Database
from server.queue.enqueue import enqueue
from server.queue.kinds import Work


@dataclass(frozen=True, slots=True)
class Recurring:
    """Enqueue `work` every interval. The first time is one interval after the schedule was first declared."""

    work: Work
    every: timedelta


DECLARE = text("""
    INSERT INTO job_schedule (kind, every, next_at) VALUES (:kind, :every, now() + :every)
    ON CONFLICT (kind) DO UPDATE
    SET every = excluded.every, next_at = least(job_schedule.next_at, excluded.next_at)
    WHERE job_schedule.every <> excluded.every
""")

# Of all processes that try, one moves `next_at`; the others wait for the row lock and then find nothing due.
# Times missed while no process ran are skipped: next_at becomes the next time in the future. A time later than one
# interval from now was written while the server's clock was ahead.
FIRE = text("""
    UPDATE job_schedule
    SET next_at = next_at + every * (1 + floor(extract(epoch FROM now() - next_at) / extract(epoch FROM every)))
    WHERE kind = :kind AND (next_at <= now() OR next_at > now() + every + interval '5 seconds')
    RETURNING kind
""")

TIME_TO_NEXT = text("SELECT min(next_at) - clock_timestamp() FROM job_schedule WHERE kind = ANY(:kinds)")


async def declare(database: Database, recurring: Sequence[Recurring]) -> None:
    """Store the schedules. A changed interval counts from now."""
    async with database.write() as session:
        for each in sorted(recurring, key=lambda each: each.work.kind):
            await session.execute(DECLARE, {"kind": each.work.kind, "every": each.every})


async def fire_due(database: Database, recurring: Sequence[Recurring]) -> int:
    """Enqueue what is due, unless its previous job is unfinished; return how many were due."""
    fired = 0
    for each in recurring:
        async with database.write() as session:
            due = (await session.execute(FIRE, {"kind": each.work.kind})).first()
            if due is not None:
                await enqueue(session, each.work, unique_key=f"recurring {each.work.kind}")
                fired += 1
    return fired


async def time_to_next(database: Database, recurring: Sequence[Recurring]) -> timedelta:
    """How long until the next schedule is due."""
    async with database.read() as session:
        left: timedelta | None = await session.scalar(TIME_TO_NEXT, {"kinds": [each.work.kind for each in recurring]})
    return max(left or timedelta(0), timedelta(0))
