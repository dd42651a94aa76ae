"""Embedded PostgreSQL: created in the home at the first start, stopped when its owner process ends for any reason."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from server.db.embedded.data_directory import DataDirectory, binary
from server.db.embedded.lock import HomeLock
from server.db.embedded.log import ServerLog
from server.db.embedded.process import Child, ProcessContext
from server.errors import StartupProblem

# Crash recovery takes seconds with this little WAL.
READY_TIMEOUT = 120.0
PORT_ATTEMPTS = 5
# A server that dies is restarted with exponential backoff.
MIN_RESTART_DELAY, MAX_RESTART_DELAY = 0.1, 5.0
STABLE_AFTER = 30.0
LOG_TRIM_INTERVAL = 60.0

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # their paths have a length limit, and /tmp is shared with other users
    "max_connections": "200",  # several processes, each with two pools
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "wal_level": "minimal",  # no replicas: less to write
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "io_method": "sync",  # three processes fewer; hot data is in memory
    # An idle server wakes up rarely: commits write and flush their own log, so nothing waits for these two.
    "bgwriter_delay": "10s",
    "wal_writer_delay": "10s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
# For test databases: a killed server loses its last commits, a killed machine everything.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Running:
    """A server that accepts connections."""

    url: str
    pid: int


def find_running(home: Path) -> Running | None:
    """The server that another process runs on this home, if it accepts connections now."""
    data = DataDirectory(home.expanduser().resolve())
    try:
        if data.postmaster() is None or (ready := data.ready()) is None:
            return None
        pid, port = ready
        return Running(data.url(port), pid)
    except PermissionError as error:
        raise StartupProblem(f"The home {home} belongs to another user: run this command as its user.") from error


class EmbeddedPostgres:
    """Owns the server of one home, from `start` until `stop` or the end of this process."""

    def __init__(self, home: Path, *, durable: bool = True, log: Callable[[str], None] | None = None) -> None:
        self._home = home.expanduser().resolve()
        self._durable = durable
        self._report: Callable[[str], None] = log or _discard_message
        self._lock = HomeLock(self._home)
        self._log = ServerLog(self._home)
        self._data = DataDirectory(self._home)
        self._child: Child | None = None
        self._supervisor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Running:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> Running:
        """Lock the home and start its server; raises StartupProblem."""
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._lock.acquire(self._data.postmaster)
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
        """Stop the server, wait for its end and unlock the home. Safe to call again, or without a start."""
        if self._lock.file < 0:
            return
        if self._supervisor:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            self._supervisor = None
        self._lock.clear_owner()
        if self._child:
            await self._child.stop()
            self._child = None
        self._log.close()
        self._lock.release()

    async def _start(self) -> Running:
        self._log.open()
        self._data.clean()
        context = ProcessContext(self._data.account(), self._lock.file, self._log.file)
        await self._data.ensure(context=context, log=self._log, durable=self._durable)
        port, running = await self._launch_on_free_port(context)
        await self._check_login(running)
        self._supervisor = asyncio.create_task(self._supervise(port, context))
        return running

    async def _launch_on_free_port(self, context: ProcessContext) -> tuple[int, Running]:
        for _ in range(PORT_ATTEMPTS - 1):
            port = _free_port()
            try:
                return port, await self._launch(port, context)
            except StartupProblem:
                if _is_free(port):
                    raise  # otherwise another process took the port: try the next one
        port = _free_port()
        return port, await self._launch(port, context)

    async def _launch(self, port: int, context: ProcessContext) -> Running:
        began, deadline = self._log.size(), time.monotonic() + READY_TIMEOUT
        self._data.clean()
        settings = SETTINGS | ({} if self._durable else NOT_DURABLE) | {"port": str(port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [binary("postgres"), "-D", self._data.path, *options]
        self._child = Child(command, data=self._data.path, context=context, lives_on=True)
        while (ready := self._data.ready()) is None:
            if await self._child.wait_ended(within=0.01):
                raise StartupProblem(f"PostgreSQL did not start: {self._log.reason(began)}")
            if time.monotonic() > deadline:
                await self._child.stop()
                raise StartupProblem(
                    f"PostgreSQL was not ready within {READY_TIMEOUT:.0f} seconds: {self._log.reason(began)}"
                )
        return Running(self._data.url(port), pid=ready[0])

    async def _check_login(self, running: Running) -> None:
        """A server may listen and still refuse logins: its files may be damaged, or the password replaced."""
        began = self._log.size()
        try:
            connection = await asyncpg.connect(running.url, timeout=READY_TIMEOUT)
            await connection.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            raise StartupProblem(
                f"PostgreSQL started but refuses our login: {error} {self._log.reason(began)}"
            ) from error

    async def _supervise(self, port: int, context: ProcessContext) -> None:
        """Restart the server whenever it ends by itself, on the same port so that pools reconnect."""
        delay, since = MIN_RESTART_DELAY, time.monotonic()
        while True:
            while self._child and not await self._child.wait_ended(within=LOG_TRIM_INTERVAL):
                with suppress(OSError):
                    self._log.trim()
            if time.monotonic() - since > STABLE_AFTER:
                delay = MIN_RESTART_DELAY
            self._report(f"PostgreSQL ended by itself; starting it again in {delay:.1f} s.")
            await asyncio.sleep(delay)
            delay, since = min(2 * delay, MAX_RESTART_DELAY), time.monotonic()
            try:
                running = await self._launch(port, context)
            except (StartupProblem, OSError) as problem:
                self._report(str(problem))
            else:
                self._report(f"PostgreSQL is back (pid {running.pid}).")


def _discard_message(_: str) -> None: ...


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
