"""A process of PostgreSQL's, started through launch.py, and the news of its end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LAUNCH = Path(__file__).with_name("launch.py")
# Linux can tell a process that its parent died; elsewhere launch.py stays in between and watches.
KERNEL_TIES = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every process on one data directory shares."""

    account: str  # "uid:gid" to become, "-" to stay who we are
    lock: int  # open files, inherited: see ownership.py
    log: int


class Child:
    """One started process. `gone` means that it and all it has started have ended.

    Each of them inherits the writing end of a pipe, so its end of file comes when the last is gone. After a killed
    postmaster that is exactly when PostgreSQL will start again: before, it finds its shared memory still in use.

    Create it on the event loop's thread: the kernel's tie is to the thread which starts the process.
    """

    def __init__(
        self, command: Sequence[str | Path], *, data: Path, around: Surroundings, lives_on: bool = False, text: str = ""
    ) -> None:
        tie = "kernel" if KERNEL_TIES else "watch" if lives_on else "none"
        self._pipe, inherited = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", LAUNCH, str(os.getpid()), around.account, tie, data, *command],
                stdin=subprocess.PIPE,
                stdout=around.log,
                stderr=around.log,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # a Ctrl-C in the terminal is for us; we stop PostgreSQL in our own time
                pass_fds=(around.lock, inherited),
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(inherited)
        self._gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._end)
        if tie != "watch":
            self._say(text)

    async def gone(self, *, within: float) -> bool:
        """Wait for the end, but not longer than `within` seconds; tell whether it came."""
        try:
            async with asyncio.timeout(within):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def stop(self) -> None:
        """Fast shutdown; if that takes too long as on a power cut, which loses no commit; then by force."""
        for number, seconds in ((signal.SIGINT, 15.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0)):
            if not self.is_gone:
                self.signal(number)
            if await self.gone(within=seconds):
                return

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it listened; its exit code says so

    def _end(self) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._process.wait()  # its files are closed, so it has ended but for the last microseconds
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._gone.set()


def _environment() -> dict[str, str]:
    """Little: PG* variables would change what the commands do, and our secrets are none of the server's business."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C"}
