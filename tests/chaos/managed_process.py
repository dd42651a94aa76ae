"""One Pilotlight process under test: started, killed, frozen, stopped and restarted."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.processes import ROOT

RESTART_PAUSE = 0.3  # seconds; a real process manager is no faster
IS_READY = (b"worker.ready", b"api.ready", b" is ready")


@dataclass(frozen=True, slots=True)
class Life:
    """From a start to the end of that process, by the machine's monotonic clock."""

    pid: int
    began: float
    ended: float


@dataclass
class ManagedProcess:
    """`name` as in the schedule. An end that the harness did not cause is a crash, if it was ready."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: Path
    lives: list[Life] = field(default_factory=list[Life])
    frozen: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    crashes: list[str] = field(default_factory=list[str])
    slow_ends: list[str] = field(default_factory=list[str])
    peak_bytes: int = 0
    _other_environment: dict[str, str | None] = field(default_factory=dict[str, str | None])
    _process: asyncio.subprocess.Process | None = None
    _keeper: "asyncio.Task[None] | None" = None
    _is_expected: bool = False
    _is_over: bool = False
    _stopping: int = 0
    _ready_pid: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log"
        self.clock = self.folder / "clock"
        self.clock.write_text("0")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        self._is_over = False
        await self._launch()
        self._keeper = asyncio.create_task(self._keep())

    async def end(self) -> None:
        """Ends it, without a restart."""
        self._is_over = self._is_expected = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._keeper is not None:
            await self._keeper

    def kill(self) -> None:
        """kill -9; the keeper starts another."""
        self._is_expected = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    async def freeze(self, seconds: float) -> None:
        """SIGSTOP for so many seconds. Its connections stay open."""
        pid, began = self.pid, time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.frozen.append((pid, began, time.monotonic()))
                os.kill(pid, signal.SIGCONT)

    async def run_with(self, environment: dict[str, str | None], seconds: float) -> None:
        """Kill it; its successor has other settings for so many seconds, then it is killed and all is as before."""
        self._other_environment = environment
        self.kill()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._other_environment = {}
            self.kill()

    async def stop_in_order(self, *, within: float) -> int | None:
        """SIGTERM; longer than `within`, or an end with an error, is noted. Its exit code, if it ended by itself."""
        process, was_ready = self._process, self.is_ready
        # A second SIGTERM would end the process at once, which is not what is tested here.
        if process is None or process.returncode is not None or process.pid == self._stopping:
            return None
        self._stopping = process.pid
        self._is_expected = True
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                code = await process.wait()
        except TimeoutError:
            if not self._was_frozen_since(began):
                self.slow_ends.append(f"{self.name} (pid {process.pid}) still ran {within:.0f} s after SIGTERM")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            return None
        # Killed: another fault was faster.
        if code not in (0, -signal.SIGKILL) and was_ready:
            self.slow_ends.append(f"{self.name} (pid {process.pid}) ended with {code} after SIGTERM")
        return code

    @property
    def is_ready(self) -> bool:
        """Whether the present process has said so."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            said = log.read()
        return any(words in said for words in IS_READY)

    @property
    def is_up(self) -> bool:
        """Whether it runs and has said that it is ready."""
        if self._process is None or self._process.returncode is not None:
            return False
        if self._ready_pid != self.pid and self.is_ready:
            self._ready_pid = self.pid
        return self._ready_pid == self.pid

    def measure(self) -> int:
        """Its memory now, in bytes; the most ever is kept."""
        try:
            size = psutil.Process(self.pid).memory_info().rss
        except psutil.Error:
            return 0
        self.peak_bytes = max(self.peak_bytes, size)
        return size

    def _was_frozen_since(self, began: float) -> bool:
        return any(stop > began for _, _, stop in self.frozen)

    async def _launch(self) -> None:
        self._is_expected = False
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._began = time.monotonic()
        environment = {**self.environment, **self._other_environment, "CHAOS_CLOCK": str(self.clock)}
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self.arguments,
                cwd=ROOT,
                env={name: value for name, value in environment.items() if value is not None},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def _keep(self) -> None:
        """Start it again whenever it ends. One that could not start, for want of a database, is no crash."""
        while True:
            assert self._process is not None
            code = await self._process.wait()
            self.lives.append(Life(self.pid, self._began, time.monotonic()))
            if not self._is_expected and not self._other_environment and self.is_ready:
                self.crashes.append(f"{self.name} (pid {self.pid}) ended by itself with {code}; see {self.log}")
            if self._is_over:
                return
            await asyncio.sleep(RESTART_PAUSE)
            await self._launch()
