"""Homes with a migrated database that need no initdb: one is made, the others are copies of it."""

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from tests.support.postgres import cheapen_logins


@asynccontextmanager
async def made() -> AsyncIterator[Path]:
    """A home whose server is durable and does not run."""
    with _folder("pilotlight-made-") as folder:
        async with EmbeddedPostgres(folder / "home") as running:
            await cheapen_logins(running.url)
            await upgrade(running.url)
        yield folder / "home"


@contextmanager
def copy_of(home: Path) -> Iterator[Path]:
    with _folder("pilotlight-home-") as folder:
        subprocess.run(["cp", "-a", home, folder / "home"], check=True)
        yield folder / "home"


@contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
