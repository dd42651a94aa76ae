"""Homes for the embedded PostgreSQL."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from server.db.embedded.server import EmbeddedPostgres


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A home that does not exist yet."""
    yield tmp_path / "fresh"
    shutil.rmtree(tmp_path)  # a database is 40 MB, and pytest would keep the last three runs


@pytest.fixture(scope="session")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A home with a database that was stopped, as most starts find it."""
    folder = tmp_path_factory.mktemp("made")
    async with EmbeddedPostgres(folder / "home", durable=False):
        pass
    yield folder / "home"
    shutil.rmtree(folder)
