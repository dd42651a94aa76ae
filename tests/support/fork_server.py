"""Starts `pilotlight` processes by fork: one process per test process has imported everything, and waits.

Each start as a command of its own takes a second of CPU for imports, which is most of what a whole-process test needs.
What is forked is a process like any other: its own id, signals, environment, folder and output. Tests whose subject is
the command itself, or another user or interpreter, start it as a command.
"""

import asyncio
import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMPORTED = ("up", "serve", "roles", "simulate", "doctor", "main")  # of server.cli
LOADED_AT_START = ("server.jobs", "uvicorn.lifespan")  # with their modules, by a command that runs
REQUEST_MAX = 1_000_000  # bytes


class ForkedProcess:
    """Like asyncio's Process: its id, its end and signals to it."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self._end = end
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._returncode is None and select.select([self._end], [], [], 0)[0]:
            self._returncode = int(os.read(self._end, 10))
            os.close(self._end)
        return self._returncode

    async def wait(self) -> int:
        while (code := self.returncode) is None:
            await self._report()
        return code

    async def _report(self) -> None:
        """Wait until the pipe has the exit code. By a descriptor of its own: several may wait, on any event loop."""
        loop, end = asyncio.get_running_loop(), os.dup(self._end)
        is_there = asyncio.Event()
        loop.add_reader(end, is_there.set)
        try:
            await is_there.wait()
        finally:
            loop.remove_reader(end)
            os.close(end)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._turn = threading.Lock()
        atexit.register(self._close)

    def start(self, args: tuple[str, ...], *, folder: Path, env: dict[str, str], out: int, err: int) -> ForkedProcess:
        request = json.dumps({"args": args, "folder": str(folder), "env": env}).encode()
        end, reported = os.pipe()
        try:
            with self._turn:
                socket.send_fds(self._socket, [request], [out, err, reported])
                return ForkedProcess(int(self._socket.recv(20)), end)
        finally:
            os.close(reported)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def fork_server() -> ForkServer:
    return ForkServer()


def _serve(requests: socket.socket) -> None:
    """Fork for each request, and write the exit code of each end into its pipe, until the test process is gone."""
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in poll.poll():
            if ready != requests.fileno():
                poll.unregister(ready)
                pid, reported = running.pop(ready)
                os.write(reported, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                os.close(reported)
                os.close(ready)
                continue
            request, handed_over, *_ = socket.recv_fds(requests, REQUEST_MAX, 3)
            if not request:
                return
            out, err, reported = handed_over
            pid = os.fork()
            if pid == 0:
                requests.close()
                for each in (reported, *running, *(end for _, end in running.values())):
                    os.close(each)
                _become(json.loads(request), out, err)
            requests.send(str(pid).encode())
            os.close(out)
            os.close(err)
            watched = os.pidfd_open(pid)
            running[watched] = (pid, reported)
            poll.register(watched, select.POLLIN)


def _become(request: dict[str, Any], out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    random.seed()  # or all of them would draw the same numbers
    sys.argv = ["pilotlight", *request["args"]]
    importlib.import_module("server.cli.main").main()
    sys.exit(0)


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(f"server.cli.{name}")
    for package in LOADED_AT_START:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    importlib.import_module("server.db.migrate").known_head()  # reads the folder of migrations
    # A command begins by collecting garbage: what is frozen here is neither searched nor copied there.
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
