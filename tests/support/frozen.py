"""A process that locks one instance's row in a transaction of ours and then freezes (SIGSTOP) inside it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from server.db.database import Database
from server.db.timeouts import Timeouts
from tests.support.waiting import until


@asynccontextmanager
async def frozen_process(url: str, instance_id: UUID, *, idle: timedelta, direct: str = "") -> AsyncIterator[int]:
    """Its process id; it holds the row until the server ends its transaction, and is killed at the end."""
    command = (sys.executable, "-m", "tests.support.frozen", url, str(instance_id), str(idle.total_seconds()), direct)
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await until(lambda: process.returncode is not None or _state(process.pid) == "T")
        assert process.returncode is None
        yield process.pid
    finally:
        process.kill()
        await process.wait()


def _state(pid: int) -> str:
    """T is stopped."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0]


async def _lock_and_freeze(url: str, instance_id: str, idle: str, direct: str) -> None:
    database = Database(url, direct_url=direct or None, timeouts=Timeouts(idle=timedelta(seconds=float(idle))))
    async with database.write() as session:
        await session.execute(text("SELECT FROM instance WHERE id = CAST(:id AS uuid) FOR UPDATE"), {"id": instance_id})
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    asyncio.run(_lock_and_freeze(*sys.argv[1:]))
