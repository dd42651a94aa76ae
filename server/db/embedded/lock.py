"""A lock on the home: one process at a time may run PostgreSQL there.

Every PostgreSQL process inherits the locked file, so the lock is free if and only if no server runs on the data
directory. A server that outlives its killed owner still blocks the next one, and the holder of the lock knows that a
pid left in the directory is stale, even if another process has that pid now.
"""

import asyncio
import fcntl
import os
import pwd
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from server.db.embedded import process
from server.errors import StartupProblem

# A server without its owner stops by itself within a second or two, unless it has much to write.
LOCK_TIMEOUT = 30.0
# When to signal an orphaned server: first a fast shutdown, then an immediate one, which loses no commit.
ORPHAN_SIGNALS = ((1.0, signal.SIGINT), (15.0, signal.SIGQUIT))


class HomeLock:
    """The lock of one home. The file holds the owner's pid and start time, for the error message."""

    def __init__(self, home: Path) -> None:
        self._path = home / "postgres.lock"
        self._home = home
        self.file = -1

    async def acquire(self, orphan: Callable[[], int | None]) -> None:
        """Take the lock, waiting for a server that outlived its owner. `orphan` returns that server's pid."""
        file = self._open()
        try:
            await self._wait(file, orphan)
        except BaseException:
            os.close(file)
            raise
        self.file = file
        self._write(f"{os.getpid()} {process.start_time(os.getpid())}")

    def clear_owner(self) -> None:
        """Processes that start from now on wait for the lock instead of being refused."""
        self._write("")

    def release(self) -> None:
        os.close(self.file)
        self.file = -1

    def _open(self) -> int:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except PermissionError as error:
            if (made_by := self._home.stat().st_uid) == os.geteuid():
                raise
            raise _wrong_user(self._home, made_by) from error
        # Root can open any user's home, but the user could not change the files that root adds.
        if (made_by := os.fstat(file).st_uid) != os.geteuid():
            os.close(file)
            raise _wrong_user(self._home, made_by)
        return file

    async def _wait(self, file: int, orphan: Callable[[], int | None]) -> None:
        began = time.monotonic()
        signals = list(ORPHAN_SIGNALS)
        while not _try_lock(file):
            if owner := _living_owner(file):
                raise StartupProblem(
                    f"Pilotlight is already running with the home {self._home} (pid {owner}): "
                    "stop it first, or choose another home."
                )
            waited = time.monotonic() - began
            if waited > LOCK_TIMEOUT:
                raise StartupProblem(
                    f"PostgreSQL from an earlier run still holds the home {self._home} "
                    f"after {LOCK_TIMEOUT:.0f} seconds (pid {orphan() or 'unknown'})."
                )
            if signals and waited > signals[0][0]:
                number = signals.pop(0)[1]
                # Checked again right before: another process may have become the owner.
                if (pid := orphan()) and not _living_owner(file):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            await asyncio.sleep(0.02)

    def _write(self, record: str) -> None:
        # A reader between the two calls sees no owner and waits.
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, record.encode(), 0)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _living_owner(file: int) -> int | None:
    pid, _, start = os.pread(file, 100, 0).decode().partition(" ")
    return int(pid) if pid.isdigit() and process.start_time(int(pid)) == start else None


def _wrong_user(home: Path, made_by: int) -> StartupProblem:
    return StartupProblem(
        f"The home {home} belongs to user {_name(made_by)} and can't be used by {_name(os.geteuid())}: "
        "run Pilotlight as its user, or choose another home."
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
