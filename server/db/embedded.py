"""PostgreSQL as a part of Pilotlight: made in the home at the first start, stopped with its owner however that ends."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import asyncpg

from server.db.child import Child, Surroundings
from server.db.datadir import DataDirectory, binary
from server.db.ownership import Ownership
from server.db.serverlog import ServerLog
from server.errors import StartupProblem

# Replaying what a crash left takes seconds with this little WAL; longer than this, something is wrong.
READY_SECONDS = 120.0
PORT_ATTEMPTS = 5
# A server that dies is started again: at once, then slower while it keeps dying.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
STEADY_SECONDS = 30.0
TRIM_LOG_SECONDS = 60.0

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # their paths have a length limit, and other users could meet them in /tmp
    "max_connections": "200",  # several processes, each with a pool
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "wal_level": "minimal",  # no replicas: less to write
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "io_method": "sync",  # three processes fewer; everything hot is in memory
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
# A killed server forgets its last commits, a killed machine everything: for databases that live as long as a test.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    url: str
    pid: int


def find_running(home: Path) -> Running | None:
    """The server that another process runs on this home, if it takes connections now."""
    data = DataDirectory(home.expanduser().resolve())
    try:
        if data.postmaster() is None or (ready := data.ready()) is None:
            return None
        pid, port = ready
        return Running(data.url(port), pid)
    except PermissionError as error:
        raise StartupProblem(f"The home {home} belongs to another user: run this command as its user.") from error


class EmbeddedPostgres:
    """Owns the server on one home, from `start` to `stop` or to the end of this process, whichever comes first."""

    def __init__(self, home: Path, *, durable: bool = True, log: Callable[[str], None] | None = None) -> None:
        self._home = home.expanduser().resolve()
        self._durable = durable
        self._tell: Callable[[str], None] = log or _tell_nobody
        self._ownership = Ownership(self._home)
        self._log = ServerLog(self._home)
        self._data = DataDirectory(self._home)
        self._child: Child | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Running:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> Running:
        """Own the home and start its server, or raise StartupProblem with one sentence why not."""
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._ownership.take(self._data.postmaster)
        except OSError as error:
            raise _unusable(self._home, error) from error
        try:
            return await self._start()
        except OSError as error:
            await self.stop()
            raise _unusable(self._home, error) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server, wait for its end and give the home free. Safe to call again, or without a start."""
        if self._ownership.file < 0:
            return
        if self._keeper:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        self._ownership.leave()
        if self._child:
            await self._child.stop()
            self._child = None
        self._log.close()
        self._ownership.release()

    async def _start(self) -> Running:
        self._log.open()
        self._data.clean()
        around = Surroundings(self._data.account(), self._ownership.file, self._log.file)
        await self._data.ensure(around=around, log=self._log, durable=self._durable)
        port, running = await self._launch_anywhere(around)
        await self._ask(running)
        self._keeper = asyncio.create_task(self._keep(port, around))
        return running

    async def _launch_anywhere(self, around: Surroundings) -> tuple[int, Running]:
        for _ in range(PORT_ATTEMPTS - 1):
            port = _free_port()
            try:
                return port, await self._launch(port, around)
            except StartupProblem:
                if _is_free(port):
                    raise  # otherwise somebody was faster with the port: take another
        port = _free_port()
        return port, await self._launch(port, around)

    async def _launch(self, port: int, around: Surroundings) -> Running:
        began, deadline = self._log.size(), time.monotonic() + READY_SECONDS
        self._data.clean()
        settings = SETTINGS | ({} if self._durable else NOT_DURABLE) | {"port": str(port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [binary("postgres"), "-D", self._data.path, *options]
        self._child = Child(command, data=self._data.path, around=around, lives_on=True)
        while (ready := self._data.ready()) is None:
            if await self._child.gone(within=0.01):
                raise StartupProblem(f"PostgreSQL did not start: {self._log.reason(began)}")
            if time.monotonic() > deadline:
                await self._child.stop()
                raise StartupProblem(
                    f"PostgreSQL was not ready within {READY_SECONDS:.0f} seconds: {self._log.reason(began)}"
                )
        return Running(self._data.url(port), pid=ready[0])

    async def _ask(self, running: Running) -> None:
        """A server may listen and still be unable to serve us: its files may be damaged, the password replaced."""
        began = self._log.size()
        try:
            connection = await asyncpg.connect(running.url, timeout=READY_SECONDS)
            await connection.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            raise StartupProblem(
                f"PostgreSQL started but does not let us in: {error} {self._log.reason(began)}"
            ) from error

    async def _keep(self, port: int, around: Surroundings) -> None:
        """Start the server again whenever it ends by itself, on the same port so that pools find it again."""
        pause, since = FIRST_PAUSE_SECONDS, time.monotonic()
        while True:
            while self._child and not await self._child.gone(within=TRIM_LOG_SECONDS):
                with suppress(OSError):
                    self._log.trim()
            if time.monotonic() - since > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._tell(f"PostgreSQL ended by itself; starting it again in {pause:.1f} s.")
            await asyncio.sleep(pause)
            pause, since = min(2 * pause, LONGEST_PAUSE_SECONDS), time.monotonic()
            try:
                running = await self._launch(port, around)
            except (StartupProblem, OSError) as problem:
                self._tell(str(problem))
            else:
                self._tell(f"PostgreSQL is back (pid {running.pid}).")


def _tell_nobody(_: str) -> None: ...


def _unusable(home: Path, error: OSError) -> StartupProblem:
    where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
    return StartupProblem(f"The home {home} can't be used: {error.strerror}{where}.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PostgreSQL does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
