"""The examples of README.md are run against Pilotlight, and return what README.md says."""

import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gql import GraphQLRequest
from graphql import DocumentNode, OperationDefinitionNode, OperationType
from typer.main import get_command

from server.cli.main import app
from tests.support.databases import DatabaseMaker
from tests.support.other_environment import run_program
from tests.support.processes import PILOTLIGHT, ROOT, Up, up
from tests.support.watcher import STORY, GraphQLClient

README = (ROOT / "README.md").read_text()
MOST_LINES = 150


@dataclass
class Block:
    """A fenced block."""

    language: str
    text: str


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)]


@pytest.fixture(scope="module")
async def running(new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    home = tmp_path_factory.mktemp("home")
    async with up(home, env={"DATABASE_URL": await new_database.migrated()}) as running:
        yield running


def kind_of(block: Block) -> OperationType:
    document: DocumentNode = GraphQLRequest(block.text).document
    [definition] = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    return definition.operation


def answer_after(block: Block) -> Any:
    """The JSON that is shown as the answer to a document: the next block, if it is one."""
    following = BLOCKS[BLOCKS.index(block) + 1 :]
    return json.loads(following[0].text) if following and following[0].language == "json" else None


def shape(value: Any) -> Any:
    """Keys and kinds without values: names, times and prices differ from run to run."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


async def test_its_mutations_and_subscriptions_do_what_it_says(running: Up):
    documents = [block for block in BLOCKS if block.language == "graphql"]
    mutations = [block for block in documents if kind_of(block) is OperationType.MUTATION]
    subscriptions = [block for block in documents if kind_of(block) is OperationType.SUBSCRIPTION]
    queries = [block for block in documents if kind_of(block) is OperationType.QUERY]
    assert mutations
    [subscription] = subscriptions
    caller = GraphQLClient(running.graphql_url, running.token)

    async with caller.subscribed(subscription.text) as events:
        for mutation in mutations:
            answer = await caller.ask(mutation.text)
            assert all(payload["errors"] == [] for payload in answer.values())
            shown = answer_after(mutation)
            assert shape({"data": answer}) == shape(shown)
            assert set(statuses_in(answer)) == set(statuses_in(shown))
        while (last := await events.next())["status"] != "READY":
            pass

    assert [event["status"] for event in events.seen if event["status"]] == STORY
    shown = answer_after(subscription)["data"]["instanceEvents"]
    assert shape(last) == shape(shown)
    assert (last["type"], last["previousStatus"]) == (shown["type"], shown["previousStatus"])
    for query in queries:
        answer = await caller.ask(query.text)
        assert answer_after(query) is None or shape({"data": answer}) == shape(answer_after(query))


def statuses_in(value: Any) -> list[str]:
    """Every status that an answer names."""
    if isinstance(value, dict):
        own = [value["status"]] if isinstance(value.get("status"), str) else []
        return own + [each for inner in value.values() for each in statuses_in(inner)]
    return [each for inner in value for each in statuses_in(inner)] if isinstance(value, list) else []


def test_its_make_commands_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"\bmake ([a-z-]+)\b", " ".join(re.findall(r"```bash\n.*?```|`[^`\n]+`", README, re.DOTALL))))

    assert {"up", "test"} <= used <= targets


def test_its_pilotlight_commands_and_options_exist():
    commands = get_command(app).commands  # type: ignore[attr-defined]
    options = {each for command in commands.values() for parameter in command.params for each in parameter.opts}

    used = set(re.findall(r"(?:`|bin/)pilotlight ([a-z]+)", README))
    assert used - set(commands) == set()
    assert set(re.findall(r"(?<=[ `])(--[a-z-]+)", README)) - options == set()


def test_its_links_lead_somewhere_and_it_is_short():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]

    assert [link for link in links if not (ROOT / Path(link.split("#")[0])).exists()] == []
    assert len(README.splitlines()) <= MOST_LINES


async def test_its_first_minute_on_the_command_line_runs_as_it_stands(running: Up, tmp_path: Path):
    (minute,) = [block.text for block in BLOCKS if block.language == "bash" and "pilotlight create" in block.text]
    env = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(tmp_path), "PILOTLIGHT_HOME": str(running.home)}
    command = minute.replace(".venv/bin/pilotlight", shlex.join(PILOTLIGHT)).replace("trainer", "minute")
    code, printed, said = await run_program("sh", "-ec", command, env=env)
    assert code == 0, said
    read, at, shown = json.JSONDecoder(), 0, list[Any]()
    while at < len(printed):
        value, at = read.raw_decode(printed, at)
        shown.append(value)
        at += 1  # the line's end
    created, listed, removed = shown
    assert (created["name"], created["status"]) == ("minute", "READY")
    assert "minute" in [each["name"] for each in listed]
    assert [(each["name"], each["status"]) for each in removed] == [("minute", "DELETED")]


async def test_the_first_command_that_up_prints_creates_an_instance_from_any_folder(running: Up, tmp_path: Path):
    printed = running.said.split("from another terminal of this folder:")[1].split("The same by GraphQL:")[0].strip()
    path = f"{Path(PILOTLIGHT[0]).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "XDG_CONFIG_HOME": str(tmp_path)}
    code, created, said = await run_program("sh", "-c", f"{printed} --no-wait -o name", env=env)
    assert (code, created) == (0, "first\n"), said


def test_the_first_query_that_up_prints_is_a_mutation_for_this_server_and_token(running: Up):
    """Taken apart, not sent: the shell and curl are not ours to test."""
    command = running.said.split("The same by GraphQL:")[1].split("Ctrl-C")[0].strip()
    assert command.startswith(f"curl -s {running.graphql_url} ")
    assert f"Bearer {running.token}" in command
    body = json.loads(command.split("-d '")[1].rstrip("'"))
    assert kind_of(Block("graphql", body["query"])) is OperationType.MUTATION
