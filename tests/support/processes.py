"""Real `pilotlight` processes for tests: started, waited for with a deadline, ended by their ids."""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.support.fork_server import ForkedProcess, fork_server
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
PILOTLIGHT = (str(Path(sys.executable).with_name("pilotlight")),)
# Everything quick: instances live fast, a dead worker's jobs come back soon, probes follow each other closely.
QUICK = {
    "SIMULATOR_SPEED": "50",
    "JOB_LEASE": "2s",
    "HEALTH_CHECK_DELAY": "100ms",
    "INSTANCE_POLL_INTERVAL": "1s",
    "NOVITA_RATE_LIMIT": "0",
}
START_SECONDS = 60.0
STOP_SECONDS = 40.0


@dataclass
class Pilotlight:
    """One running command. Standard error goes to a file, so that a full pipe never stops it."""

    process: asyncio.subprocess.Process | ForkedProcess
    folder: Path
    family: set[int] = field(default_factory=set[int])

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        """Everything on standard error so far."""
        return (self.folder / "stderr").read_text()

    @property
    def printed(self) -> str:
        """Everything on standard output so far."""
        return (self.folder / "stdout").read_text()

    async def says(self, words: str, *, within: float = START_SECONDS) -> None:
        await until(lambda: words in self.said or self.process.returncode is not None, within=within)
        assert words in self.said, f"it ended with {self.process.returncode}: {self.said}"

    async def ends(self, *, within: float = STOP_SECONDS) -> int:
        """Wait for its end, and give its exit code."""
        async with asyncio.timeout(within):
            return await self.process.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = STOP_SECONDS) -> int:
        self.note_family()
        self.process.send_signal(number)
        return await self.ends(within=within)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stopped by SIGSTOP; it goes on at the end."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    async def kill_tree(self) -> None:
        """kill -9 for it and all that it started, and wait until none is left."""
        self.note_family()
        for pid in self.family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self.process.wait()
        await until(lambda: not self.survivors())

    def note_family(self) -> None:
        """Remember its children: once it is gone, they have other parents."""
        with suppress(psutil.NoSuchProcess):
            self.family |= {self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True))}

    def survivors(self) -> list[int]:
        return [pid for pid in self.family if _lives(pid)]


@dataclass
class Up(Pilotlight):
    """`pilotlight up`, with what its ready-file says."""

    home: Path = Path()
    ready: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def graphql_url(self) -> str:
        return str(self.ready["graphqlUrl"])

    @property
    def token(self) -> str:
        return str(self.ready["token"])


@asynccontextmanager
async def pilotlight(
    *args: str, env: dict[str, str] | None = None, command: tuple[str, ...] | None = None, **how: Any
) -> AsyncIterator[Pilotlight]:
    """Run `pilotlight ARGS` in an empty folder, with QUICK and `env` as all of its settings; it ends with the block.

    Without a `command` it is forked from a process that has imported everything.
    """
    with _folder() as folder:
        process = await _start(folder, args, env or {}, command, how)
        running = Pilotlight(process, folder)
        try:
            yield running
        finally:
            await running.kill_tree()


@asynccontextmanager
async def up(home: Path, *args: str, env: dict[str, str] | None = None, **how: Any) -> AsyncIterator[Up]:
    """Run `pilotlight up` on a home, once it is ready."""
    with _folder() as folder:
        file = folder / "ready.json"
        command: tuple[str, ...] | None = how.pop("command", None)
        given = ("up", "--port", "0", "--home", str(home), "--ready-file", str(file), *args)
        process = await _start(folder, given, env or {}, command, how)
        running = Up(process, folder, home=home)
        try:
            await until(lambda: file.exists() or process.returncode is not None, within=START_SECONDS)
            assert process.returncode is None, f"it ended with {process.returncode}: {running.said}"
            running.ready = json.loads(file.read_text())
            yield running
        finally:
            await running.kill_tree()


async def run(*args: str, env: dict[str, str] | None = None, within: float = START_SECONDS, **how: Any) -> "Ended":
    """Run a command to its end; what it said stays readable in memory."""
    async with pilotlight(*args, env=env, **how) as running:
        await running.ends(within=within)
        return Ended(running.process, running.folder, said=running.said, printed=running.printed)


class Ended(Pilotlight):
    """A command that is over. Its folder is gone, so its words are kept."""

    def __init__(
        self, process: asyncio.subprocess.Process | ForkedProcess, folder: Path, *, said: str, printed: str
    ) -> None:
        super().__init__(process, folder)
        self._said, self._printed = said, printed

    @property
    def said(self) -> str:
        return self._said

    @property
    def printed(self) -> str:
        return self._printed

    @property
    def code(self) -> int | None:
        return self.process.returncode


async def control(simulator_url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The simulator's control API: GET, or POST when there is a body."""
    async with (
        aiohttp.ClientSession() as session,
        session.request("GET" if body is None else "POST", f"{simulator_url}/control/{path}", json=body) as response,
    ):
        assert response.status == 200, await response.text()
        return await response.json()


async def made(simulator_url: str) -> int:
    """How many instances the simulator has ever made."""
    return int((await control(simulator_url, "state"))["instancesMade"])


async def has_made(simulator_url: str, number: int) -> None:
    """Wait until it has made so many."""

    async def enough() -> bool:
        return await made(simulator_url) >= number

    await until(enough)


def free_port() -> int:
    """A port outside the range for outgoing connections, where it could be taken before it is used."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def _start(
    folder: Path, args: tuple[str, ...], env: dict[str, str], command: tuple[str, ...] | None, how: dict[str, Any]
) -> asyncio.subprocess.Process | ForkedProcess:
    # Nothing of the tester's own settings, and no home: what a process needs to know, the test has said.
    environment = {"PATH": os.environ.get("PATH", os.defpath), **QUICK, **env}
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        if command is None and not how:
            start = partial(fork_server().start, args, folder=folder, env=environment)
            return await asyncio.to_thread(start, out=out.fileno(), err=err.fileno())
        return await asyncio.create_subprocess_exec(
            *(command or PILOTLIGHT),
            *args,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            **how,
        )


class _folder:
    """An empty folder that any user can enter and write to."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="pilotlight-process-"))
        self._path.chmod(0o777)
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
