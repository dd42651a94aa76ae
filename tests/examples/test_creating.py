"""Every example that creates an instance creates it, once, and says what is wrong when it can't."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.examples.programs import curl, python, running, typescript
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import Up
from tests.support.watcher import GraphQLClient

Command = Callable[[str], list[str]]
CREATING: dict[str, Command] = {
    "gql": lambda name: python("python/create_with_gql.py", name),
    "aiohttp": lambda name: python("python/create_with_aiohttp.py", name),
    "urql": lambda name: typescript("create.js", name),
    "curl": lambda name: curl("create.sh", name),
}
each = pytest.mark.parametrize("example", CREATING)


@each
async def test_it_leads_to_an_instance_that_answers_and_run_again_to_the_same(
    example: str, server: Up, caller: GraphQLClient, tmp_path: Path
):
    name = f"{example}-first"

    for _ in range(2):
        async with running(CREATING[example](name), tmp_path, **where(server)) as program:
            assert await program.ends() == 0, program.said

        [instance] = await named(caller, name)
        assert instance["status"] == "READY"
        [endpoint] = instance["endpoints"]
        assert any(line.endswith(endpoint["address"]) for line in program.lines), program.lines


@each
async def test_a_refusal_is_printed_with_its_code(example: str, server: Up, tmp_path: Path):
    async with running(CREATING[example]("x" * 256), tmp_path, **where(server)) as program:
        assert await program.ends() == 1

    assert "INVALID_INSTANCE_NAME" in program.said + "".join(program.lines)


@each
async def test_a_wrong_token_is_reported_and_not_retried(example: str, server: Up, tmp_path: Path):
    environment = {**where(server), "PILOTLIGHT_TOKEN": "pl_wrong"}

    async with running(CREATING[example]("nobody"), tmp_path, **environment) as program:
        assert await program.ends() == 1

    assert "valid token" in program.said
    assert "Traceback" not in program.said


@pytest.mark.parametrize("example", ["aiohttp", "curl"])
async def test_an_answer_that_is_lost_does_not_make_a_second_instance(
    example: str, server: Up, caller: GraphQLClient, tmp_path: Path
):
    """The request arrives and is accepted; the connection is reset in the first byte of the answer."""
    name = f"{example}-lost"

    async with FaultProxy(urlsplit(server.graphql_url).port or 0) as network:
        network.break_after(bytes_down=1)
        environment = {**where(server), "PILOTLIGHT_URL": f"http://127.0.0.1:{network.port}/graphql"}
        async with running(CREATING[example](name), tmp_path, **environment) as program:
            code = await program.ends()

    assert code == 0, program.said
    [instance] = await named(caller, name)
    assert instance["status"] == "READY"
    if example == "aiohttp":
        assert "it had been asked for before" in program.lines


async def named(caller: GraphQLClient, name: str) -> list[dict[str, Any]]:
    """All that have this in their name."""
    found = await caller.ask(
        """query ($name: String!) {
          instances(filter: {nameContains: $name}) { nodes { id status endpoints { address } } }
        }""",
        name=name,
    )
    return found["instances"]["nodes"]


def where(server: Up) -> dict[str, str]:
    return {"PILOTLIGHT_URL": server.graphql_url, "PILOTLIGHT_TOKEN": server.token}
