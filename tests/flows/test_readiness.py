"""/readyz reports what is wrong, and that a process is stopping before it stops."""

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

from tests.flows.deployment import new_token
from tests.support.processes import Pilotlight, pilotlight
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

NOWHERE = {"NOVITA_API_KEY": "sk_x", "NOVITA_API_BASE_URL": "http://127.0.0.1:1", "LOG_FORMAT": "json"}


@pytest.fixture
async def url(new_database: Any) -> str:
    return await new_database.migrated()


@asynccontextmanager
async def an_api(url: str, folder: Path, **settings: str) -> AsyncIterator[tuple[Pilotlight, str]]:
    """A running API, and where it is."""
    file = folder / "ready.json"
    env = {"DATABASE_URL": url, **NOWHERE, **settings}
    async with pilotlight("serve", "--port", "0", "--ready-file", str(file), env=env) as api:
        await until(lambda: file.exists() or api.process.returncode is not None, within=60)
        assert file.exists(), api.said
        yield api, json.loads(file.read_text())["graphqlUrl"].removesuffix("/graphql")


async def readiness(base: str) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as http, http.get(f"{base}/readyz") as response:
        return response.status, await response.json()


async def test_a_stopping_process_is_not_ready_and_still_serves_while_it_drains(url: str, tmp_path: Path):
    token = await new_token(url)
    async with an_api(url, tmp_path, DRAIN_TIME="5s") as (api, base):
        caller = GraphQLClient(f"{base}/graphql", token)
        async with caller.subscribed() as events:

            async def is_ready() -> bool:
                return (await readiness(base))[0] == 200

            await until(is_ready, within=30)  # on a busy machine the event log is followed some moments later
            api.process.send_signal(signal.SIGTERM)

            async def is_leaving() -> bool:
                return (await readiness(base))[0] == 503

            await until(is_leaving, within=10)
            _, body = await readiness(base)
            assert body["checks"]["stopping"] == "the process is stopping; send requests elsewhere"
            assert {body["checks"][name] for name in ("database", "migrations", "events")} == {"ok"}
            # Requests that are still sent here are answered, and no subscriber was disconnected.
            assert await caller.ask("{ __typename }") == {"__typename": "Query"}
            with pytest.raises(TimeoutError):
                await events.next(within=0.2)
        assert await api.ends(within=60) == 0


async def test_unnumbered_events_are_reported_by_a_started_process(url: str, tmp_path: Path):
    connection = await asyncpg.connect(url)
    try:
        # The sequencer waits for this lock.
        await connection.execute("BEGIN; LOCK TABLE event_log IN ACCESS EXCLUSIVE MODE")
        other = await asyncpg.connect(url)
        await other.execute(
            "INSERT INTO outbox (id, type, project_id, data, occurred_at)"
            " VALUES (gen_random_uuid(), 'instance.ready', gen_random_uuid(), '{}', now() - interval '1 minute')"
        )
        await other.close()
        async with an_api(url, tmp_path) as (_, base):
            await asyncio.sleep(0)
            _, body = await readiness(base)
            assert body["checks"]["sequencer"].startswith("the oldest event has waited ")
            assert body["checks"]["workers"] == "no worker is alive; accepted work waits"
    finally:
        await connection.close()
