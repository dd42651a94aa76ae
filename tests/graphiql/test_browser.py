"""GraphiQL as it is used: a real browser, a real server, and no other host in reach."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server.cli.build_pages import GRAPHIQL, BuildFailed, Npm, build, find_npm
from tests.support.databases import DatabaseMaker
from tests.support.processes import Up, up
from tests.web.browser import CHROMIUM

# The first of them waits for npm and the build, which stand back for everything else that runs.
pytestmark = pytest.mark.timeout(400)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.fixture(scope="module")
async def npm() -> Npm:
    """The page, built from what is in the clone, and what has built it."""
    try:
        npm = await find_npm()
    except BuildFailed as problem:
        pytest.skip(f"no npm: {problem}")
    if not await asyncio.to_thread(GRAPHIQL.is_fresh):
        await build(GRAPHIQL)
    return npm


@pytest.fixture(scope="module")
async def server(npm: Npm, new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    # Not as quickly as elsewhere: each event is to be seen before the next one takes its place.
    env = {"DATABASE_URL": await new_database.migrated(), "SIMULATOR_SPEED": "4"}
    async with up(tmp_path_factory.mktemp("home"), env=env) as running:
        yield running


async def test_it_is_used_with_nothing_else_in_reach(server: Up, npm: Npm, tmp_path: Path):
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium, or say where with CHROMIUM")

    report = await visit(npm.node, server, tmp_path)

    assert report["elsewhere"] == []
    assert report["violations"] == []
    assert report["refused"] == []
    assert report["console"] == []
    first, then = ["Create", "Watch", "Start", "Quote", "Fleet"], ["Spend", "Lifetimes", "Market", "Logs", "Jobs"]
    assert report["tabs"] == first + then
    answers = report["answers"]
    assert '"billingMode": "SPOT"' in answers["quote"]
    assert '"status": "CREATING"' in answers["create"]
    # Only the newest is shown, so on a slow machine some are overtaken by the next before they are seen.
    assert len(set(report["watched"])) >= 2
    assert report["watched"][-1] == "operation.finished"
    assert '"progress": 100' in answers["watch"]
    assert "INSTANCE_NOT_STARTABLE" in answers["start"] or "OPERATION_IN_PROGRESS" in answers["start"]
    assert '"made-elsewhere"' in answers["fleet"]
    assert '"kind": "' in answers["jobs"]
    assert '"paidTime"' in answers["spend"]
    assert '"nodes"' in answers["lifetimes"]
    assert '"RTX 4090' in answers["market"]
    assert '"instanceLog": null' in answers["logs"]
    assert '"replayed":true' in answers["narrow"]  # a second fresh profile sends the first tab's variables, too
    assert '"candidates"' in answers["hurried"]
    assert '"instanceEvents"' in answers["hurriedWatch"]
    assert report["back"] == "/"
    assert report["withoutToken"]["asked"] is True
    assert '"total": 3' in report["withoutToken"]["answer"]


async def visit(node: str, server: Up, shots: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(node, "test/visit.mjs", server.graphql_url, server.token, str(shots)),
        cwd=GRAPHIQL.folder,
        env={**os.environ, "CHROMIUM": str(CHROMIUM)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()[-4000:]
    return json.loads(said)


@pytest.mark.parametrize("accept", ["application/json", "application/graphql-response+json", "*/*"])
async def test_programs_that_ask_the_same_address_get_the_api(server: Up, accept: str):
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {server.token}"}) as session,
        session.get(server.graphql_url, params={"query": "{ __typename }"}, headers={"accept": accept}) as response,
    ):
        assert "json" in response.content_type
        assert (await response.json())["data"] == {"__typename": "Query"}


async def test_the_page_has_a_strict_policy_and_is_not_kept(server: Up):
    async with aiohttp.ClientSession() as session, session.get(server.graphql_url, headers=browser()) as response:
        page, policy = await response.text(), response.headers["content-security-policy"]
        assert response.content_type == "text/html"
        assert response.headers["cache-control"] == "no-store"

    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert server.token in page


@pytest.mark.parametrize(
    "header", [{"x-forwarded-for": "192.0.2.1"}, {"host": "rebound.example"}, {"origin": "http://a"}]
)
async def test_the_token_is_given_to_local_requests_only(server: Up, header: dict[str, str]):
    async with (
        aiohttp.ClientSession() as session,
        session.get(server.graphql_url, headers={**browser(), **header}) as response,
    ):
        assert server.token not in await response.text()


def browser() -> dict[str, str]:
    return {"accept": BROWSER}
