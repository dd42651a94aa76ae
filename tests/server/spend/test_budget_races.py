"""Creates of two processes race for one budget, and processes are killed among them: the budget holds.

`make budget-races` runs 1,000 rounds.
"""

import asyncio
import os
import random
import sys
from uuid import UUID

from server.clock import new_id
from tests.server.spend import creates_in_rounds
from tests.server.spend.creates_in_rounds import PRICE_E5
from tests.support.waiting import until
from tests.support.world import World

ROUNDS = int(os.environ.get("BUDGET_RACES", "6"))
KILL_EVERY = 3
AT_ONCE, FITTING = 64, 10
OPEN = "SELECT count(*) FROM operation WHERE project_id = $1 AND status IN ('QUEUED', 'RUNNING')"
BUSY = """
    SELECT count(*) FROM pg_locks WHERE relation = 'budget'::regclass AND pid <> pg_backend_pid()
"""


class Process:
    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            creates_in_rounds.__name__,
            self.url,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

    async def create(self, project_id: UUID, token_id: UUID, number: int) -> int | None:
        """How many were accepted; None if it was killed meanwhile."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{project_id} {token_id} {number}\n".encode())
        await self.process.stdin.drain()
        line = await self.process.stdout.readline()
        return int(line) if line else None

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def project_with_budget(world: World, number: int) -> tuple[UUID, UUID]:
    """For exactly ten machines that run for an hour."""
    caller = await world.new_caller(f"race-{number}-{new_id().hex[-8:]}")
    await world.execute(
        """INSERT INTO budget (id, project_id, name, period, timezone, limit_micros, thresholds, action, exempt,
                               horizon_s)
           VALUES ($1, $2, 'all', 'TOTAL', 'UTC', $3, '[]', 'BLOCK', '[]', 3600)""",
        new_id(),
        caller.project_id,
        FITTING * PRICE_E5 * 10,
    )
    return caller.project_id, caller.token_id


async def test_of_64_creates_of_two_processes_exactly_ten_are_accepted_whatever_is_killed(
    world: World, database_url: str
):
    chance = random.Random(1)
    processes = [Process(database_url), Process(database_url)]
    await asyncio.gather(*(each.start() for each in processes))
    try:
        for number in range(ROUNDS):
            project_id, token_id = await project_with_budget(world, number)
            creating = [
                asyncio.create_task(each.create(project_id, token_id, AT_ONCE // len(processes))) for each in processes
            ]
            if number % KILL_EVERY == KILL_EVERY - 1:
                await asyncio.sleep(chance.uniform(0, 0.08))
                victim = chance.choice(processes)
                await victim.kill()
                await asyncio.gather(*creating)
                await victim.start()
                # What the dead process had sent may still be written; then the rest of the budget is used.
                await until(lambda: is_quiet(world))
                creating = [asyncio.create_task(each.create(project_id, token_id, AT_ONCE)) for each in processes]
                await asyncio.gather(*creating)
            else:
                accepted = await asyncio.gather(*creating)
                assert sum(each or 0 for each in accepted) == FITTING, f"round {number}"
            assert await world.value(OPEN, project_id) == FITTING, f"round {number}"
    finally:
        await asyncio.gather(*(each.kill() for each in processes))


async def is_quiet(world: World) -> bool:
    return await world.value(BUSY) == 0
