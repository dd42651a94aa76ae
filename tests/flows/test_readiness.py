"""/readyz tells what is wrong, and that a process is leaving before it leaves."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from server.db.migrate import upgrade
from tests.flows.stage import new_token
from tests.flows.watcher import Caller
from tests.processes import Pilotlight, eventually, pilotlight, sooner_or_later

NOWHERE = {"NOVITA_API_KEY": "sk_x", "NOVITA_API_BASE_URL": "http://127.0.0.1:1", "LOG_FORMAT": "json"}


@pytest.fixture
async def url(new_database: Any) -> str:
    url = await new_database()
    await upgrade(url)
    return url


@asynccontextmanager
async def an_api(url: str, folder: Path, **settings: str) -> AsyncIterator[tuple[Pilotlight, str]]:
    """A running API, and where it is."""
    file = folder / "ready.json"
    env = {"DATABASE_URL": url, **NOWHERE, **settings}
    async with pilotlight("serve", "--port", "0", "--ready-file", str(file), env=env) as api:
        await eventually(lambda: file.exists() or api.process.returncode is not None, within=60)
        assert file.exists(), api.said
        yield api, json.loads(file.read_text())["graphqlUrl"].removesuffix("/graphql")


async def readiness(base: str) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as http, http.get(f"{base}/readyz") as response:
        return response.status, await response.json()


async def test_a_process_that_is_told_to_stop_is_not_ready_and_serves_on_for_a_while(url: str, tmp_path: Path):
    token = await new_token(url)
    async with an_api(url, tmp_path, DRAIN_TIME="15s") as (api, base):
        caller = Caller(f"{base}/graphql", token)
        async with caller.subscribed() as events:
            assert (await readiness(base))[0] == 200

            api.process.send_signal(signal.SIGTERM)

            async def is_leaving() -> bool:
                return (await readiness(base))[0] == 503

            await sooner_or_later(is_leaving, within=10)
            _, told = await readiness(base)
            assert told["checks"]["stopping"] == "it was told to stop; send requests elsewhere"
            assert {told["checks"][name] for name in ("database", "migrations", "events")} == {"ok"}
            # Requests that are still sent here are answered, and nobody who watches was cut off.
            assert await caller.ask("{ __typename }") == {"__typename": "Query"}
            with pytest.raises(TimeoutError):
                await events.next(within=0.2)
        assert await api.ends(within=60) == 0


async def test_events_that_nobody_numbers_are_told_of_but_keep_no_traffic_away(url: str, tmp_path: Path):
    connection = await asyncpg.connect(url)
    try:
        # Whoever wants to move them waits for us.
        await connection.execute("BEGIN; LOCK TABLE event_log IN ACCESS EXCLUSIVE MODE")
        other = await asyncpg.connect(url)
        await other.execute(
            "INSERT INTO outbox (id, type, project_id, data, occurred_at)"
            " VALUES (gen_random_uuid(), 'instance.ready', gen_random_uuid(), '{}', now() - interval '1 minute')"
        )
        await other.close()
        async with an_api(url, tmp_path) as (_, base):
            await asyncio.sleep(0)
            _, told = await readiness(base)
            assert told["checks"]["sequencer"].startswith("events have waited for ")
            assert told["checks"]["workers"] == "no worker is alive; accepted work waits"
    finally:
        await connection.close()
