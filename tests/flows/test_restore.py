"""Backup and restore as in docs/operating.md: pg_dump, pg_restore and `pilotlight restored`, between real processes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from gql.transport.exceptions import TransportQueryError

from server.db.embedded.data_directory import binary
from server.db.migrate import upgrade
from server.enums import Role
from tests.flows.deployment import new_token
from tests.support.databases import DatabaseMaker
from tests.support.processes import control, made, pilotlight, run
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

CREATE = """
    mutation ($name: String!, $key: String) {
      createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx", idempotencyKey: $key}) {
        instance { id } errors { code message }
      }
    }
"""
MACHINE = "query ($id: ID!) { instance(id: $id) { status novitaId } }"
FLEET = "{ fleet(includeNovitaOnly: true) { items { nodes { novitaId instance { id } } } } }"
ADOPT = "mutation ($id: String!) { adoptInstance(input: {novitaId: $id}) { instance { id } errors { code message } } }"
CURSOR = "{ events(first: 1) { pageInfo { endCursor } } }"
AFTER = "query ($after: String) { events(first: 1, after: $after) { nodes { id } } }"


async def create(client: GraphQLClient, name: str, key: str | None = None) -> str:
    payload = (await client.ask(CREATE, name=name, key=key))["createInstance"]
    assert payload["errors"] == []
    return str(payload["instance"]["id"])


async def machine_of(client: GraphQLClient, id: str) -> str:
    """The machine of an instance, once it is READY."""
    found: dict[str, Any] = {}

    async def is_ready() -> bool:
        found.update((await client.ask(MACHINE, id=id))["instance"])
        return found["status"] == "READY"

    await until(is_ready, within=90)
    return str(found["novitaId"])


@asynccontextmanager
async def api(env: dict[str, str], token: str, file: Path) -> AsyncIterator[GraphQLClient]:
    async with pilotlight("serve", "--port", "0", "--ready-file", str(file), env=env) as process:
        await until(lambda: file.exists() or process.process.returncode is not None, within=60)
        assert file.exists(), process.said
        yield GraphQLClient(json.loads(file.read_text())["graphqlUrl"], token)
        await process.stop()


@asynccontextmanager
async def worker(env: dict[str, str]) -> AsyncIterator[None]:
    async with pilotlight("worker", env=env) as process:
        await process.says("worker.ready")
        yield
        await process.stop()


async def execute(program: str, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(str(binary(program)), *arguments)
    assert await process.wait() == 0, program


async def empty(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    finally:
        await connection.close()


async def test_after_a_restored_dump_no_machine_is_made_twice_or_unseen(new_database: DatabaseMaker, tmp_path: Path):
    url, dump = await new_database(), str(tmp_path / "pilotlight.dump")
    await upgrade(url)
    token = await new_token(url, Role.ADMIN)
    async with AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        await simulator.says("http://")
        provider = next(word for word in simulator.said.split() if word.startswith("http://"))
        env = {"DATABASE_URL": url, "NOVITA_API_KEY": "sk_x", "NOVITA_API_BASE_URL": provider, "LOG_FORMAT": "json"}
        async with api(env, token, tmp_path / "before") as client:
            async with worker(env):
                kept = await create(client, "kept")
                machines = {"kept": await machine_of(client, kept)}
            between = await create(client, "between")  # accepted, and not carried out before the backup
            await execute("pg_dump", "-Fc", "-f", dump, url)
            async with worker(env):
                machines["between"] = await machine_of(client, between)
                machines["keyed"] = await machine_of(client, await create(client, "keyed", "key-1"))
                machines["lost"] = await machine_of(client, await create(client, "lost"))
            cursor = (await client.ask(CURSOR))["events"]["pageInfo"]["endCursor"]
        assert await made(provider) == 4

        # Into the same database: unlike one on another server, it is not recognized as another log by itself.
        await empty(url)
        await execute("pg_restore", "-d", url, dump)
        restored = await run("restored", env=env)
        assert restored.code == 0, restored.said
        assert "1 instances were compared with 4 machines" in restored.printed
        assert all(f"machine {machines[name]} " in restored.printed for name in ("between", "keyed", "lost"))
        assert machines["kept"] not in restored.printed

        async with api(env, token, tmp_path / "after") as client, worker(env):
            assert await machine_of(client, between) == machines["between"]
            again = await create(client, "keyed", "key-1")
            assert await machine_of(client, again) == machines["keyed"]
            adopted = (await client.ask(ADOPT, id=machines["lost"]))["adoptInstance"]
            assert adopted["errors"] == []
            assert await machine_of(client, adopted["instance"]["id"]) == machines["lost"]
            assert await machine_of(client, kept) == machines["kept"]
            items = (await client.ask(FLEET))["fleet"]["items"]["nodes"]
            assert sorted(each["novitaId"] for each in items) == sorted(machines.values())
            assert all(each["instance"] is not None for each in items)
            with pytest.raises(TransportQueryError, match="CURSOR_EXPIRED"):
                await client.ask(AFTER, after=cursor)
        assert await made(provider) == 4
        assert (await control(provider, "state"))["instances"] == 4
