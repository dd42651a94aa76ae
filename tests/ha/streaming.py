"""A primary and its streaming replica, from the binaries that Pilotlight ships."""

import asyncio
import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from server.db.embedded.data_directory import binary
from server.db.embedded.process import LAUNCH
from tests.support.processes import free_port
from tests.support.waiting import until

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "replica",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "hot_standby_feedback": "on",
}


@dataclass
class PostgresServer:
    """One PostgreSQL server on a folder of its own."""

    data: Path
    port: int
    fsync: bool = False  # what lives as long as a test need not survive a crash
    process: asyncio.subprocess.Process | None = None

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    async def start(self) -> None:
        settings = SETTINGS | ({} if self.fsync else {"fsync": "off"})
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.process = await _spawn(self.data, "postgres", "-D", str(self.data), "-p", str(self.port), *options)
        await until(self.answers)

    async def answers(self) -> bool:
        try:
            await self.ask("SELECT 1")
        except (OSError, asyncpg.PostgresError):
            return False
        return True

    async def ask(self, statement: str, name: str = "postgres") -> object:
        connection = await asyncpg.connect(self.url(name))
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def back_up(self, copy: "PostgresServer", *more: str) -> None:
        """A base backup with the WAL that it needs, into the copy's folder."""
        copy.port = copy.port or free_port()
        if os.geteuid() == 0:
            shutil.chown(copy.data, "nobody")
        source = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres")
        await run_as_server(
            copy.data, "pg_basebackup", *source, "-D", str(copy.data), "-X", "stream", "-c", "fast", "-N", *more
        )

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGQUIT)  # at once and without a farewell, its children too
            await self.process.wait()
        self.process = None


@asynccontextmanager
async def primary_and_replica(*, fsync: bool = False) -> AsyncIterator[tuple[PostgresServer, PostgresServer]]:
    folder = Path(tempfile.mkdtemp(prefix="pilotlight-replica-"))
    folder.chmod(0o755)
    primary, replica = (PostgresServer(_folder(folder / name), free_port(), fsync) for name in ("primary", "replica"))
    try:
        await run_as_server(
            primary.data, "initdb", "-D", str(primary.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"
        )
        await primary.start()
        await primary.back_up(replica, "-R")
        await replica.start()
        yield primary, replica
    finally:
        for server in (replica, primary):
            await server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _folder(path: Path) -> Path:
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(path, "nobody")
    return path


async def run_as_server(data: Path, program: str, *args: str) -> None:
    process = await _spawn(data, program, *args)
    assert await process.wait() == 0, program


async def _spawn(data: Path, program: str, *args: str) -> asyncio.subprocess.Process:
    """Not as root, which PostgreSQL refuses; the launcher knows how."""
    nobody = pwd.getpwnam("nobody")
    account = f"{nobody.pw_uid}:{nobody.pw_gid}" if os.geteuid() == 0 else "-"
    launch = [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), account, "-", str(data)]
    return await asyncio.create_subprocess_exec(
        *launch,
        str(binary(program)),
        *args,
        cwd="/",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
