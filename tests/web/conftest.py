"""Fixtures for tests of the dashboard: the built page, browsers and a server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.cli.build_pages import DASHBOARD, BuildFailed, build, find_npm
from tests.support.databases import DatabaseMaker
from tests.support.processes import Up, up
from tests.web.browser import CHROMIUM, Servant, a_servant


@pytest.fixture(scope="session")
async def built() -> Path:
    """The page, built from what is in the clone; test processes that need it at the same time wait for each other."""
    try:
        await find_npm()
    except BuildFailed as problem:
        pytest.skip(f"no npm: {problem}")
    if not await asyncio.to_thread(DASHBOARD.is_fresh):
        await build(DASHBOARD)
    return DASHBOARD.folder / "dist"


@pytest.fixture(scope="session")
async def node(built: Path) -> AsyncIterator[Servant]:
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium, or say where with CHROMIUM")
    async with a_servant() as servant:
        yield servant


@pytest.fixture
async def servant(node: Servant) -> AsyncIterator[Servant]:
    """A test's own pages are closed after it: open ones follow their server, and draw what later tests change."""
    yield node
    await node.do("closePages")


@pytest.fixture(scope="module")
async def running(
    built: Path, new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Up]:
    """One server for a module's tests; they don't disturb each other, because each uses its own instances."""
    home = tmp_path_factory.mktemp("home")
    # All tests of a module look at the provider more often than one person may.
    limits = {"LIVE_READS_PER_TOKEN": "0", "LIVE_READS_PER_PROJECT": "0"}
    async with up(home, env={"DATABASE_URL": await new_database.migrated(), **limits}) as running:
        yield running
