"""Every example that subscribes receives each event once and in order, across a cut network and its own restart."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.examples.programs import Program, curl, python, running, typescript
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import Up
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

Command = Callable[[str], list[str]]
WATCHING: dict[str, Command] = {
    "gql": lambda cursor: python("python/watch_with_gql.py", cursor),
    "graphql-ws": lambda cursor: typescript("watch.js", cursor),
    "curl": lambda cursor: curl("watch.sh", cursor),
}
each = pytest.mark.parametrize("example", WATCHING)


@each
async def test_it_sees_every_event_once(example: str, server: Up, caller: GraphQLClient, tmp_path: Path):
    cursor = tmp_path / "cursor.txt"
    command = WATCHING[example](str(cursor))

    async with FaultProxy(urlsplit(server.graphql_url).port or 0) as network:
        environment = {"PILOTLIGHT_URL": f"http://127.0.0.1:{network.port}/graphql", "PILOTLIGHT_TOKEN": server.token}
        async with running(command, tmp_path, **environment) as first:
            await until(cursor.exists, within=60)
            begin = cursor.read_text()
            await has_seen_the_end_of(first, await finished(caller, f"{example}-before"))
            network.cut()
            await first.says("cut off")
            missed = await finished(caller, f"{example}-meanwhile")
            network.mend()
            await has_seen_the_end_of(first, missed)
            # Each event is printed first and its cursor kept afterwards: killed in between, it would be printed again.
            end = (await log_after(caller, begin))[-1].cursor
            await until(lambda: cursor.read_text() == end)
        missed = await finished(caller, f"{example}-while-dead")
        async with running(command, tmp_path, **environment) as second:
            await has_seen_the_end_of(second, missed)
            log = [each.event for each in await log_after(caller, begin)]
            await until(lambda: log[-1] in seen(second))

    assert seen(first) + seen(second) == log


@each
async def test_a_wrong_token_ends_it(example: str, server: Up, tmp_path: Path):
    environment = {"PILOTLIGHT_URL": server.graphql_url, "PILOTLIGHT_TOKEN": "pl_wrong"}

    async with running(WATCHING[example]("cursor.txt"), tmp_path, **environment) as program:
        assert await program.ends() == 1

    assert "Traceback" not in program.said


@each
async def test_a_cursor_that_was_never_handed_out_ends_it(example: str, server: Up, tmp_path: Path):
    (tmp_path / "cursor.txt").write_text("nonsense")
    environment = {"PILOTLIGHT_URL": server.graphql_url, "PILOTLIGHT_TOKEN": server.token}

    async with running(WATCHING[example]("cursor.txt"), tmp_path, **environment) as program:
        assert await program.ends() == 1

    assert "INVALID_CURSOR" in program.said


def seen(program: Program) -> list[tuple[str, str]]:
    """Instance and type of each event that it printed: as JSON, or as words."""
    return [_event_in(line) for line in program.lines]


def _event_in(line: str) -> tuple[str, str]:
    if line.startswith("{"):
        event = json.loads(line)["data"]["instanceEvents"]
        return event["instanceId"], event["type"]
    instance_id, type = line.split()[:2]
    return instance_id, type


async def has_seen_the_end_of(program: Program, instance_id: str) -> None:
    """Wait for the last event of a create."""
    await until(lambda: (instance_id, "operation.finished") in seen(program), within=60)


async def finished(caller: GraphQLClient, name: str) -> str:
    """An instance whose create has ended and whose events are in the log."""
    async with caller.subscribed() as events:
        id = await caller.create(name)
        while (event := await events.next())["type"] != "operation.finished" or event["instanceId"] != id:
            pass
    return id


@dataclass(frozen=True)
class Logged:
    cursor: str
    event: tuple[str, str]


async def log_after(caller: GraphQLClient, cursor: str) -> list[Logged]:
    page = await caller.ask(
        """query ($after: String) {
          events(after: $after, first: 100) { edges { cursor node { instanceId type } } pageInfo { hasNextPage } }
        }""",
        after=cursor,
    )
    assert not page["events"]["pageInfo"]["hasNextPage"]
    edges = page["events"]["edges"]
    return [Logged(edge["cursor"], (edge["node"]["instanceId"], edge["node"]["type"])) for edge in edges]
