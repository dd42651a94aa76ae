"""Homes for the embedded PostgreSQL."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.db.embedded import EmbeddedPostgres


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A home that does not exist yet."""
    yield tmp_path / "fresh"
    shutil.rmtree(tmp_path)  # a database is 40 MB, and pytest would keep the last three runs


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A home with a database that was stopped, as most starts find it."""
    subprocess.run(["cp", "-a", made, tmp_path / "home"], check=True)
    yield tmp_path / "home"
    shutil.rmtree(tmp_path)


@pytest.fixture(scope="session")
async def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made") / "home"
    async with EmbeddedPostgres(home, durable=False):
        pass
    return home
