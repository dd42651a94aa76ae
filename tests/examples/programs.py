"""Runs the examples as their readers do: as programs, with only a URL and a token."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.waiting import until

EXAMPLES = ROOT / "examples"
TYPESCRIPT = EXAMPLES / "typescript"
LONGEST = 90.0  # seconds for a program that ends by itself


@dataclass
class Program:
    """A running example."""

    process: asyncio.subprocess.Process
    out: Path
    err: Path

    @property
    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    @property
    def said(self) -> str:
        return self.err.read_text()

    async def prints(self, words: str, *, within: float = 60.0) -> None:
        """Wait until a line has these words."""
        await until(lambda: any(words in line for line in self.lines) or self._is_over, within=within)
        assert any(words in line for line in self.lines), f"{self.lines} {self.said}"

    async def says(self, words: str, *, within: float = 60.0) -> None:
        await until(lambda: words in self.said or self._is_over, within=within)
        assert words in self.said, f"{self.lines} {self.said}"

    async def ends(self, *, within: float = LONGEST) -> int:
        async with asyncio.timeout(within):
            return await self.process.wait()

    async def kill(self) -> None:
        """With its children: a shell leaves its curl behind."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    @property
    def _is_over(self) -> bool:
        return self.process.returncode is not None


@asynccontextmanager
async def running(command: list[str], folder: Path, **env: str) -> AsyncIterator[Program]:
    """An example until the end of the block; what it prints is kept in `folder`."""
    number = len(list(folder.glob("*.out")))
    out, err = folder / f"{number}.out", folder / f"{number}.err"
    environment = {"PATH": os.environ.get("PATH", os.defpath), **env}
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=stdout, stderr=stderr, start_new_session=True
        )
    program = Program(process, out, err)
    try:
        yield program
    finally:
        await program.kill()


def python(name: str, *args: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *args]


def curl(name: str, *args: str) -> list[str]:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    return ["bash", str(EXAMPLES / "curl" / name), *args]


def typescript(name: str, *args: str) -> list[str]:
    """Compiled by the TypeScript of its own lock file, which finds wrong types too; once, and again when it changes."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    installed, built = TYPESCRIPT / "node_modules/.package-lock.json", TYPESCRIPT / "dist" / name
    # Test processes that need it at the same time wait for each other; the lock ends with the process that holds it.
    with (TYPESCRIPT / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_older(installed, [TYPESCRIPT / "package-lock.json"]):
            _npm("ci", "--prefer-offline", "--no-audit", "--no-fund")
        if _is_older(built, [installed, TYPESCRIPT / "tsconfig.json", *(TYPESCRIPT / "src").iterdir()]):
            _npm("run", "build")
    return ["node", str(built), *args]


def _is_older(file: Path, than: list[Path]) -> bool:
    return not file.exists() or any(file.stat().st_mtime < other.stat().st_mtime for other in than)


def _npm(*args: str) -> None:
    done = subprocess.run(["npm", *args], cwd=TYPESCRIPT, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
