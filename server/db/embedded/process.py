"""Starts PostgreSQL processes through launch.py and notices their end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LAUNCH = Path(__file__).with_name("launch.py")
# Linux signals a process when its parent dies; elsewhere launch.py stays in between and watches.
HAS_PDEATHSIG = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What all processes of one data directory share."""

    account: str  # "uid:gid" to switch to, "-" to keep the user
    lock: int  # open files, inherited: see lock.py
    log: int


class Child:
    """One started process. It has ended when it and all its descendants have.

    Each of them inherits the writing end of a pipe, which reaches end of file when the last has ended. After a killed
    postmaster PostgreSQL can start again only then: before, its shared memory is still in use.

    Create it on the event loop's thread: the kernel ties the process to the thread that starts it.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        data: Path,
        context: ProcessContext,
        lives_on: bool = False,
        text: str = "",
    ) -> None:
        tie = "kernel" if HAS_PDEATHSIG else "watch" if lives_on else "none"
        self._pipe, inherited = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", LAUNCH, str(os.getpid()), context.account, tie, data, *command],
                stdin=subprocess.PIPE,
                stdout=context.log,
                stderr=context.log,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # Ctrl-C in the terminal is for Pilotlight, which then stops PostgreSQL
                pass_fds=(context.lock, inherited),
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(inherited)
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._on_end)
        if tie != "watch":
            self._write_input(text)

    async def wait_ended(self, *, within: float) -> bool:
        """Wait up to `within` seconds for the end; returns whether it came."""
        try:
            async with asyncio.timeout(within):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def stop(self) -> None:
        """Fast shutdown; after a timeout immediate shutdown, which loses no commit; then SIGKILL."""
        for number, seconds in ((signal.SIGINT, 15.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0)):
            if not self.has_ended:
                self.signal(number)
            if await self.wait_ended(within=seconds):
                return

    def _write_input(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it read its input; its exit code says so

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._process.wait()  # its files are closed, so it ends within microseconds
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._ended.set()


def _environment() -> dict[str, str]:
    """A minimal environment: PG* variables would change what the commands do, and secrets must not be passed on."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C"}


def start_time(pid: int) -> str | None:
    """When the process started, in the system's own unit; None if it has ended.

    Pid and start time identify a process; a pid alone is reused later.
    """
    if sys.platform != "linux":
        state, _, start = _ps(pid, "state=", "lstart=").partition(" ")
        return start.strip() if state and not state.startswith("Z") else None
    try:
        # The name in parentheses may contain spaces and parentheses; the state and 18 more fields follow it.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19] if fields[0] not in "ZX" else None


def is_postgres(pid: int, data: Path) -> bool:
    """Whether the process is a PostgreSQL server of that data directory."""
    if sys.platform != "linux":
        return f"postgres -D {data} " in _ps(pid, "command=")
    try:
        arguments = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return False
    return arguments[0].endswith("/postgres") and str(data) in arguments


def _ps(pid: int, *columns: str) -> str:
    command = ["ps", "-ww", *(part for column in columns for part in ("-o", column)), "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
