"""Other processes that own an embedded PostgreSQL, for tests that kill them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from server.db.embedded.process import is_postgres, start_time
from tests.support.waiting import until

ROOT = Path(__file__).parents[4]

# Prints what it runs and waits; a StartupProblem goes to stdout as well, so that one readline tells the story.
OWN = """
import asyncio, signal, sys
from pathlib import Path
from server.db.embedded import process as child
from server.db.embedded.server import EmbeddedPostgres
from server.errors import StartupProblem

async def own():
    async with EmbeddedPostgres(Path(sys.argv[1]), durable="durable" in sys.argv) as running:
        print(running.pid, running.url, flush=True)
        await asyncio.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background of a shell inherits deaf ears
child.HAS_PDEATHSIG = child.HAS_PDEATHSIG and "watch" not in sys.argv
try:
    asyncio.run(own())
except StartupProblem as problem:
    print("problem", problem, flush=True)
except KeyboardInterrupt:
    pass
"""


@dataclass
class Owner:
    """A process that owns the home, or could not."""

    process: asyncio.subprocess.Process
    said: str

    @property
    def pid(self) -> int:
        return int(self.said.split()[0])

    @property
    def url(self) -> str:
        return self.said.split()[1]

    async def end_by(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self.process.wait()


@asynccontextmanager
async def owner(home: Path, *options: str, python: str = sys.executable, **how: object) -> AsyncIterator[Owner]:
    """Start a process that owns the home; it is ended with the test."""
    process = await asyncio.create_subprocess_exec(
        python,
        *("-c", OWN, str(home), *options),
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=asyncio.subprocess.PIPE,
        **how,  # pyright: ignore[reportArgumentType]
    )
    said = ""
    try:
        assert process.stdout is not None
        said = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
        yield Owner(process, said)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if said and not said.startswith("problem"):
            await _ended(int(said.split()[0]), home)


async def _ended(postmaster: int, home: Path) -> None:
    if is_postgres(postmaster, home / "postgres"):
        os.kill(postmaster, signal.SIGCONT)  # a test that failed may have left it stopped
    await until(lambda: start_time(postmaster) is None)


async def run(url: str, *statements: str) -> object:
    """Run the statements and give the last one's single value."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        for statement in statements:
            value = await connection.fetchval(statement)
        return value
    finally:
        await connection.close()
