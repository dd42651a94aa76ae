"""Running what waits for its time now."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import will_change
from server.queue.enqueue import TOPIC

# By instance, as an index has it. One that is running is past waiting.
HURRY = text("""
    UPDATE job SET run_at = clock_timestamp(), due_at = clock_timestamp() + (due_at - run_at)
    WHERE instance_id = :instance_id AND kind = :kind AND status = 'WAITING' AND run_at > clock_timestamp()
""")


async def hurry(session: AsyncSession, kind: str, *, instance_id: UUID) -> None:
    """An instance's jobs of this kind wait no longer."""
    will_change(session, TOPIC)
    await session.execute(HURRY, {"kind": kind, "instance_id": instance_id})
