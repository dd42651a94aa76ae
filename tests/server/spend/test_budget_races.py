"""Creates over HTTP at two API processes race for one budget, and processes are killed among them: the budget holds.

`make budget-races` runs 1,000 rounds.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from server.clock import new_id
from server.enums import Role
from tests.support.processes import Pilotlight, pilotlight
from tests.support.waiting import until
from tests.support.world import RTX, World

ROUNDS = int(os.environ.get("BUDGET_RACES", "2"))
KILL_EVERY = 2 if ROUNDS < 100 else 10
AT_ONCE, FITTING, TRIES = 64, 10, 3
REFUSED = "BUDGET_EXCEEDED"
OPEN = "SELECT count(*) FROM operation WHERE project_id = $1 AND status IN ('QUEUED', 'RUNNING')"
PRICE = "SELECT reserved_price_e5 FROM operation WHERE reserved_price_e5 IS NOT NULL"
CREATE = """
    mutation ($input: CreateInstanceInput!) {
      createInstance(input: $input) { instance { id } errors { code message } }
    }
"""
INPUT = {"productName": RTX, "image": "nginx:1.27", "lifetime": {"maxDuration": 3600}}


class Process:
    """An API process that is started again after it was killed."""

    def __init__(self, settings: dict[str, str], folder: Path) -> None:
        self._settings, self._folder, self._starts = settings, folder, 0
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def start(self) -> None:
        self._starts += 1
        file = self._folder / f"{id(self)}-{self._starts}"
        self._running = AsyncExitStack()
        arguments = ("serve", "--port", "0", "--ready-file", str(file))
        process: Pilotlight = await self._running.enter_async_context(pilotlight(*arguments, env=self._settings))
        await until(file.exists, within=60)
        self.url = json.loads(file.read_text())["graphqlUrl"]
        self.pid = process.pid

    async def kill(self) -> None:
        await self._running.aclose()

    async def create(self, token: str, key: str) -> str | None:
        """The id of the instance, or None if it was refused. Raises ClientError if there is no response."""
        body = {"query": CREATE, "variables": {"input": {**INPUT, "name": key, "idempotencyKey": key}}}
        async with self.http.post(self.url, json=body, headers={"authorization": f"Bearer {token}"}) as response:
            payload: dict[str, Any] = (await response.json())["data"]["createInstance"]
        assert [each["code"] for each in payload["errors"]] in ([], [REFUSED]), payload
        return None if payload["errors"] else payload["instance"]["id"]


async def budget_for_ten(world: World, price_e5: int) -> tuple[str, UUID]:
    """Of a project of its own, for exactly ten machines that run for an hour: the secret of its token, and its id."""
    secret, caller = await world.new_token(f"race-{new_id().hex}", Role.OPERATOR)
    await world.execute(
        """INSERT INTO budget (id, project_id, name, period, timezone, limit_micros, thresholds, action, exempt,
                               horizon_s)
           VALUES ($1, $2, 'all', 'TOTAL', 'UTC', $3, '[]', 'BLOCK', '[]', 3600)""",
        new_id(),
        caller.project_id,
        FITTING * price_e5 * 10,
    )
    return secret, caller.project_id


async def create_all(processes: list[Process], token: str, keys: list[str]) -> dict[str, str | None]:
    """Half of them at each process; those without a response are left out."""

    async def create(number: int, key: str) -> tuple[str, str | None] | None:
        try:
            return key, await processes[number % len(processes)].create(token, key)
        except aiohttp.ClientError:
            return None

    answers = await asyncio.gather(*(create(number, key) for number, key in enumerate(keys)))
    return dict(each for each in answers if each is not None)


@pytest.fixture
async def processes(world: World, database_url: str, tmp_path: Path):
    settings = {
        "DATABASE_URL": database_url,
        "NOVITA_API_BASE_URL": world.simulator.url,
        "NOVITA_API_KEY": world.simulator.api_key,
        "REQUEST_RATE_LIMIT": "0",
        "REQUEST_RATE_LIMIT_PER_PROJECT": "0",
        "MAX_PENDING_CREATES": "1000000",  # no worker carries them out
    }
    both = [Process(settings, tmp_path) for _ in range(2)]
    await asyncio.gather(*(each.start() for each in both))
    yield both
    for each in both:
        await each.kill()
        await each.http.close()


async def test_of_64_creates_at_two_processes_exactly_ten_are_accepted_whatever_is_killed(
    world: World, processes: list[Process]
):
    chance = random.Random(1)
    token, _ = await world.new_token("first", Role.OPERATOR)
    assert all(await asyncio.gather(*(each.create(token, f"first-{each.pid}") for each in processes)))
    price_e5: int = await world.value(PRICE)
    quickest, counts = 10.0, Counter[str]()
    for number in range(1, ROUNDS + 1):
        token, project_id = await budget_for_ten(world, price_e5)
        keys = [f"key-{each}" for each in range(AT_ONCE)]
        began = time.monotonic()
        creating = asyncio.create_task(create_all(processes, token, keys))
        if number % KILL_EVERY == 0:
            await asyncio.sleep(chance.uniform(0, quickest))
            victim = chance.choice(processes)
            await victim.kill()
            outcomes = await creating
            await victim.start()
            counts["killed"] += 1
        else:
            outcomes = await creating
            quickest = min(quickest, time.monotonic() - began)
        # A client sends what has no response again, with the same key: also to a process that has just closed an idle
        # connection.
        for _ in range(TRIES):
            missing = [key for key in keys if key not in outcomes]
            counts["without a response"] += len(missing)
            outcomes |= await create_all(processes, token, missing)
        accepted = {each for each in outcomes.values() if each is not None}
        assert (len(outcomes), len(accepted)) == (AT_ONCE, FITTING), f"round {number}"
        assert await world.value(OPEN, project_id) == FITTING, f"round {number}"
        counts["accepted"] += len(accepted)
        if number % 100 == 0:
            sys.stdout.write(f"{number} rounds, {dict(counts)}\n")
            sys.stdout.flush()
