"""Caches with the policy of newest.js, newest_apollo.js and newest_urql.js show what the server said last."""

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.programs import running, typescript
from tests.support.databases import DatabaseMaker
from tests.support.processes import Up, up

STEPS = int(os.environ.get("CACHE_STEPS", "120"))
SEEDS = [int(seed) for seed in os.environ.get("CACHE_SEEDS", "3").split()]
MOST_STEPS = 2000  # until a cache without the policy goes back: usually fewer than 30
LONGEST = 100.0 + STEPS / 4  # seconds
each = pytest.mark.parametrize("library", ["apollo", "urql"])


@pytest.fixture(scope="module")
async def server(new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """One of their own: other tests count the events of theirs."""
    async with up(tmp_path_factory.mktemp("home"), env={"DATABASE_URL": await new_database.migrated()}) as running:
        yield running


@each
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_cache_shows_what_the_server_said_last(library: str, seed: int, server: Up, tmp_path: Path):
    seen = await checked(server, tmp_path, library, "newest", str(seed), str(STEPS))

    assert seen["problems"] == []
    assert seen["unanswered"] == []
    assert seen["steps"] == STEPS
    assert min(seen[kind] for kind in ("reads", "mutations", "events", "overtaken", "looks")) > 0, seen


@each
async def test_without_the_policy_it_does_not(library: str, server: Up, tmp_path: Path):
    seen = await checked(server, tmp_path, library, "plain", "3", str(MOST_STEPS))

    assert "the server said" in seen["problems"][0]


async def checked(server: Up, folder: Path, *args: str) -> dict[str, Any]:
    """What cache_check.mjs reports; it runs beside the compiled examples, where it finds their packages."""
    compiled = typescript("newest.js")[1]
    program = Path(compiled).with_name(f"cache_check_{os.getpid()}.mjs")
    shutil.copy(Path(__file__).with_name("cache_check.mjs"), program)
    environment = {
        "PILOTLIGHT_URL": server.graphql_url,
        "PILOTLIGHT_TOKEN": server.token,
        "NODE_ENV": "production",
    }
    try:
        async with running(["node", str(program), *args], folder, **environment) as check:
            assert await check.ends(within=LONGEST) == 0, check.said
    finally:
        program.unlink()
    [line] = check.lines
    sys.stdout.write(f"{line}\n")  # for `make cache-check`
    return json.loads(line)
