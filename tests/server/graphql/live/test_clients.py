"""Third-party GraphQL clients work with subscriptions."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gql import Client, gql
from gql.transport.websockets import WebsocketsTransport

from tests.server.graphql.conftest import EVENTS, serving_with, shown, write_events
from tests.support.api import Api

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
async def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the protocol's reference client in it, fetched now."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("node")
    npm = await asyncio.create_subprocess_exec(
        "npm", "install", "--silent", "--no-audit", "--no-fund", "--fetch-retries=0",
        "graphql-ws@6", "graphql@16", "ws@8",
        cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(40):
            code = await npm.wait()
    except TimeoutError:
        npm.kill()
        await npm.wait()
        code = 1
    if code != 0:
        pytest.skip("npm can't fetch graphql-ws here")
    shutil.copy(HERE / "graphql_ws.mjs", folder)
    return folder


async def test_the_reference_client_comes_back_to_another_process_and_misses_nothing(api: Api, node_folder: Path):
    start = api.server.head_cursor()
    async with serving_with(api) as (server, service):
        addresses = [f"ws://{each.address}/graphql" for each in (server, api.server)]
        node = await asyncio.create_subprocess_exec(
            "node",
            "graphql_ws.mjs",
            api.token,
            start,
            "12",
            *addresses,
            cwd=node_folder,
            stdout=asyncio.subprocess.PIPE,
        )
        assert node.stdout is not None
        lines: list[dict[str, Any]] = []

        async def read(count: int) -> None:
            async with asyncio.timeout(30):
                while len([line for line in lines if "id" in line]) < count:
                    line = await node.stdout.readline()  # pyright: ignore[reportOptionalMemberAccess]
                    assert line, lines
                    lines.append(json.loads(line))

        try:
            written = await write_events(api.world.database, api.caller.project_id, 4)
            await read(4)
            await service.stop()
            written += await write_events(api.world.database, api.caller.project_id, 8)
            await read(12)
        finally:
            if node.returncode is None:
                node.kill()
            await node.wait()
    assert [line["id"] for line in lines if "id" in line] == shown(written)
    assert [line["closed"] for line in lines if "closed" in line] == [1012]


async def test_a_client_in_python_runs_subscriptions_queries_and_mutations_on_one_socket(api: Api):
    transport = WebsocketsTransport(
        url=f"ws://{api.server.address}/graphql",
        init_payload={"Authorization": f"Bearer {api.token}"},
        subprotocols=[WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL],
        ping_interval=1,
        keep_alive_timeout=30,
    )
    seen: list[str] = []
    async with Client(transport=transport, fetch_schema_from_transport=True) as session:
        document = gql(EVENTS)
        document.variable_values = {"after": api.server.head_cursor()}

        async def watch() -> None:
            async for result in session.subscribe(document):
                seen.append(result["instanceEvents"]["id"])
                if len(seen) == 5:
                    return

        watching = asyncio.create_task(watch())
        assert (await session.execute(gql("{ instances { nodes { name } } }")))["instances"] == {"nodes": []}
        written = await write_events(api.world.database, api.caller.project_id, 5)
        async with asyncio.timeout(20):
            await watching
    assert seen == shown(written)
