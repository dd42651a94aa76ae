"""`serve`, `worker` and `up` wait at their start for a database that is away."""

import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from tests.support.databases import DatabaseMaker
from tests.support.processes import free_port, pilotlight, run
from tests.support.proxy import Proxy
from tests.support.waiting import until

PROVIDER = {"NOVITA_API_KEY": "sk_x", "NOVITA_API_BASE_URL": "http://127.0.0.1:9", "LOG_FORMAT": "json"}


async def test_api_and_worker_wait_for_the_database_and_then_start(new_database: DatabaseMaker, tmp_path: Path):
    port = free_port()
    database_url = await new_database.migrated()
    target = urlsplit(database_url)
    url = target._replace(netloc=f"{target.username}:{target.password}@127.0.0.1:{port}").geturl()
    settings = {"DATABASE_URL": url, **PROVIDER}
    file = tmp_path / "ready"
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            pilotlight("serve", "--port", "0", "--ready-file", str(file), env=settings)
        )
        worker = await stack.enter_async_context(pilotlight("worker", env=settings))
        await api.says("database.waiting")
        await worker.says("database.waiting")
        assert not file.exists()

        await stack.enter_async_context(Proxy(database_url, port=port))

        await until(file.exists, within=60)
        await worker.says("worker.ready")
        assert (await api.stop(), await worker.stop()) == (0, 0)
    assert json.loads(file.read_text())["databaseUrl"] == url


async def test_while_it_waits_a_process_is_alive_and_not_ready(new_database: DatabaseMaker, tmp_path: Path):
    database, port = free_port(), free_port()
    database_url = await new_database.migrated()
    target = urlsplit(database_url)
    url = target._replace(netloc=f"{target.username}:{target.password}@127.0.0.1:{database}").geturl()
    home = str(tmp_path / "home")
    command = ("up", "--port", str(port), "--home", home)
    async with pilotlight(*command, env={"DATABASE_URL": url, "LOG_FORMAT": "json", "BUILD_PAGES": "false"}) as running:
        await running.says("database.waiting")
        assert await status_of(port, "/healthz") == 200
        assert await status_of(port, "/readyz") == 503
        assert await status_of(port, "/graphql") == 503

        async with Proxy(database_url, port=database):
            await running.says("up.ready")
            assert await status_of(port, "/healthz") == 200

            async def is_ready() -> bool:
                return await status_of(port, "/readyz") == 200

            await until(is_ready)
            assert await running.stop() == 0


async def status_of(port: int, path: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status


async def test_waiting_ends_with_the_signal_and_with_the_setting():
    url = f"postgresql://me:hunter2@127.0.0.1:{free_port()}/name"
    async with pilotlight("worker", env={"DATABASE_URL": url, **PROVIDER}) as worker:
        await worker.says("database.waiting")
        assert await worker.stop(signal.SIGTERM) == 0
        assert "hunter2" not in worker.said

    ended = await run("serve", "--port", "0", env={"DATABASE_URL": url, "DATABASE_START_TIMEOUT": "0", **PROVIDER})
    assert ended.code == 1
    assert "can't use the database at postgresql://me:***@127.0.0.1" in ended.said
    assert "hunter2" not in ended.said
