"""Who may run PostgreSQL on a home: one process at a time, by a lock that PostgreSQL itself holds too.

Every PostgreSQL process inherits the locked file. So the lock can be taken if, and only if, no server runs on
the data directory: an owner killed with its server half stopped still holds the next one back, and whoever has
the lock knows that any pid left in the directory is stale, even when another process wears that number by now.
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

from server.db import processes
from server.errors import StartupProblem

# A server that lost its owner stops by itself within a second or two, unless there is much to write back.
PATIENCE_SECONDS = 30.0
# When to help an orphan that has not stopped: first as on Ctrl-C, then as on a power cut, which loses no commit.
REMINDERS = ((1.0, signal.SIGINT), (15.0, signal.SIGQUIT))


class Ownership:
    """The lock on one home. The file holds the owner's pid and start, for the sentence that turns others away."""

    def __init__(self, home: Path) -> None:
        self._path = home / "postgres.lock"
        self._home = home
        self.file = -1

    async def take(self, orphan: Callable[[], int | None]) -> None:
        """Become the owner; wait for a server that outlived its owner. `orphan` finds that server's pid."""
        file = self._open()
        try:
            await self._wait(file, orphan)
        except BaseException:
            os.close(file)
            raise
        self.file = file
        self._write(f"{os.getpid()} {processes.started(os.getpid())}")

    def leave(self) -> None:
        """No longer an obstacle: those who come now wait for the lock instead of being turned away."""
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
            raise _not_yours(self._home, made_by) from error
        # Root can open anybody's, but what root adds to a home its user could not touch later.
        if (made_by := os.fstat(file).st_uid) != os.geteuid():
            os.close(file)
            raise _not_yours(self._home, made_by)
        return file

    async def _wait(self, file: int, orphan: Callable[[], int | None]) -> None:
        began = time.monotonic()
        reminders = list(REMINDERS)
        while not _try(file):
            if owner := _living_owner(file):
                raise StartupProblem(
                    f"Pilotlight is already running with the home {self._home} (pid {owner}): "
                    "stop it first, or choose another home."
                )
            waited = time.monotonic() - began
            if waited > PATIENCE_SECONDS:
                raise StartupProblem(
                    f"PostgreSQL from an earlier run still holds the home {self._home} "
                    f"after {PATIENCE_SECONDS:.0f} seconds (pid {orphan() or 'unknown'})."
                )
            if reminders and waited > reminders[0][0]:
                number = reminders.pop(0)[1]
                # Asked again at the last moment: between the two looks somebody may have become the owner.
                if (pid := orphan()) and not _living_owner(file):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            await asyncio.sleep(0.02)

    def _write(self, record: str) -> None:
        # Shorter than a page and written by the only owner; a reader between the two calls sees nobody, and waits.
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, record.encode(), 0)


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _living_owner(file: int) -> int | None:
    pid, _, start = os.pread(file, 100, 0).decode().partition(" ")
    return int(pid) if pid.isdigit() and processes.started(int(pid)) == start else None


def _not_yours(home: Path, made_by: int) -> StartupProblem:
    return StartupProblem(
        f"The home {home} belongs to user {_name(made_by)} and can't be used by {_name(os.geteuid())}: "
        "run Pilotlight as its user, or choose another home."
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
