"""The figures of both pools count connections in use and waiters."""

import asyncio

from server.db.database import Database
from tests.support.waiting import until


def used(database: Database) -> dict[str, tuple[int, int, int]]:
    return {each.name: (each.size, each.in_use, each.waiting) for each in database.pools()}


async def test_connections_in_use_and_waiters_are_counted(database_url: str):
    database = Database(database_url, pool_size=2)
    leave = asyncio.Event()

    async def session() -> None:
        async with database.read():
            await leave.wait()

    async def raw() -> None:
        async with database.raw.acquire():
            await leave.wait()

    assert used(database) == {"sessions": (2, 0, 0), "raw": (2, 0, 0)}
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(session())
        for _ in range(3):
            group.create_task(raw())
        await until(lambda: used(database) == {"sessions": (2, 2, 3), "raw": (2, 2, 1)})
        leave.set()

    assert used(database) == {"sessions": (2, 0, 0), "raw": (2, 0, 0)}
    await database.close()
