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
    WITH due AS MATERIALIZED (
        SELECT kind FROM job_schedule
        WHERE kind = ANY(:kinds) AND (next_at <= now() OR next_at > now() + every + interval '5 seconds')
        ORDER BY kind FOR UPDATE
    )
    UPDATE job_schedule
    SET next_at = next_at + every * (1 + floor(extract(epoch FROM now() - next_at) / extract(epoch FROM every)))
    WHERE kind IN (SELECT kind FROM due)
    RETURNING kind
""")

TIME_TO_NEXT = "SELECT min(next_at) - clock_timestamp() FROM job_schedule WHERE kind = ANY($1)"


async def declare(database: Database, recurring: Sequence[Recurring]) -> None:
    """Store the schedules. A changed interval counts from now."""
    async with database.write() as session:
        for each in sorted(recurring, key=lambda each: each.work.kind):
            await session.execute(DECLARE, {"kind": each.work.kind, "every": each.every})


async def fire_due(database: Database, recurring: Sequence[Recurring]) -> int:
    """Enqueue what is due, unless its previous job is unfinished; return how many were due."""
    works = {each.work.kind: each.work for each in recurring}
    async with database.write() as session:
        due = (await session.scalars(FIRE, {"kinds": list(works)})).all()
        for kind in due:
            await enqueue(session, works[kind], unique_key=f"recurring {kind}")
    return len(due)


async def time_to_next(database: Database, recurring: Sequence[Recurring]) -> timedelta:
    """How long until the next schedule is due."""
    left: timedelta | None = await database.raw.fetchval(TIME_TO_NEXT, [each.work.kind for each in recurring])
    return max(left or timedelta(0), timedelta(0))
