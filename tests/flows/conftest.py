"""Fixtures: homes that need no initdb, and one `pilotlight up` shared by all tests that only read from it."""

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from tests.support.processes import Up, up


@pytest.fixture(scope="session")
async def made_home() -> AsyncIterator[Path]:
    """A home with a migrated database that is not running: making one takes longer than most tests."""
    folder = Path(tempfile.mkdtemp(prefix="pilotlight-made-"))
    async with EmbeddedPostgres(folder / "home") as running:
        await upgrade(running.url)
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.fixture
def home(made_home: Path) -> Iterator[Path]:
    """A copy of it, for one test alone."""
    folder = Path(tempfile.mkdtemp(prefix="pilotlight-home-"))
    subprocess.run(["cp", "-a", made_home, folder / "home"], check=True)
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
async def shared_up(made_home: Path) -> AsyncIterator[Up]:
    """A running `pilotlight up` that writes JSON logs; no test stops it."""
    folder = Path(tempfile.mkdtemp(prefix="pilotlight-home-"))
    subprocess.run(["cp", "-a", made_home, folder / "home"], check=True)
    async with up(folder / "home", env={"LOG_FORMAT": "json", "LOG_LEVEL": "debug"}) as running:
        yield running
    shutil.rmtree(folder)
