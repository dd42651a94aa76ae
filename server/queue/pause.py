"""Holding a kind of work back, in all processes and across restarts, until it is let go again."""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import will_change
from server.queue.enqueue import TOPIC

PAUSE = text("INSERT INTO job_pause (kind) VALUES (:kind) ON CONFLICT (kind) DO NOTHING RETURNING kind")
RESUME = text("DELETE FROM job_pause WHERE kind = :kind RETURNING kind")
PAUSED = text("SELECT kind, paused_at FROM job_pause ORDER BY kind")


async def pause_jobs(session: AsyncSession, kind: str) -> bool:
    """Claim no more jobs of this kind from the commit on; running ones finish. False if it was paused already."""
    return (await session.execute(PAUSE, {"kind": kind})).first() is not None


async def resume_jobs(session: AsyncSession, kind: str) -> bool:
    """Claim them again. False if the kind was not paused."""
    will_change(session, TOPIC)
    return (await session.execute(RESUME, {"kind": kind})).first() is not None


async def paused_kinds(session: AsyncSession) -> dict[str, datetime]:
    """Each paused kind, and since when."""
    return {row.kind: row.paused_at for row in await session.execute(PAUSED)}
