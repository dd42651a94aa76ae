"""Reads out of PostgreSQL over HTTP: a page of 50 instances and one instance, 12 fields each.

    python -m bench.graphql                      at 1 and at 16 connections
    python -m bench.graphql --seconds 5          longer rounds

Beside it, in alternating rounds: the same schema, resolvers and database on Strawberry as it comes (its own
view, no caches); and, where there is Node, graphql-yoga answering the same from memory. All of them must give the same
answer. What is compared is the processor time that each server takes for a request: the clock on the wall also counts
whatever else the machine does.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import asyncpg
import orjson
import psutil
import uvloop

from bench.create import PILOTLIGHT, Caller, _line, _ready, _start, _token
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade

ROWS = 60
ROUNDS = 3
# Server CPU of a page of 50: at most so many times graphql-yoga's, and Strawberry as it comes at least so many of ours.
MAX_OF_YOGA = 1.5
LEAST_OF_STRAWBERRY = 5.0
YOGA = "graphql-yoga@5.16.0", "graphql@16.11.0"
FIELDS = (
    "id name status statusSince version productName gpuCount region image createdAt updatedAt"
    " pricePerHour { amountMicros currency }"
)
LIST = f"{{ instances(first: 50) {{ nodes {{ {FIELDS} }} }} }}"
ALL = f"{{ instances(first: 100) {{ nodes {{ {FIELDS} }} }} }}"
ONE = f"query ($id: ID!) {{ instance(id: $id) {{ {FIELDS} }} }}"


CHANGING = "the same, changing"
CHANGES_PER_SECOND = 100
# One of the rows of the first page.
CHANGE = """
    UPDATE instance SET updated_at = clock_timestamp()
    WHERE id = (SELECT id FROM (SELECT id FROM instance ORDER BY created_at DESC LIMIT 50) AS page
                ORDER BY random() LIMIT 1)
"""


@dataclass(slots=True)
class Peer:
    """One server and its measurements."""

    name: str
    url: str
    process: psutil.Process
    cpu: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    rate: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def note(self, what: tuple[str, int], cpu: float, rate: float) -> None:
        self.cpu.setdefault(what, []).append(cpu)
        self.rate.setdefault(what, []).append(rate)


async def main(seconds: float) -> bool:
    yoga_folder = installed(*YOGA)
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        url = (await stack.enter_async_context(EmbeddedPostgres(home))).url
        await upgrade(url)
        token = await _token(url)
        simulator = _start(stack, [sys.executable, "-m", "server.simulator", "--stock-factor", "100000"], {})
        env = {
            "DATABASE_URL": url,
            "NOVITA_API_KEY": "sk_bench",
            "NOVITA_API_BASE_URL": _line(simulator),
            "LOG_LEVEL": "warning",
            "RECONCILE_INTERVAL": "1h",
        }
        ready, port_file = home / "ready.json", home / "stock.url"
        ours = _start(stack, [PILOTLIGHT, "serve", "--port", "0", "--ready-file", str(ready)], env)
        strawberry = _start(stack, [sys.executable, "-m", "bench.graphql_stock", str(port_file)], env)
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        session = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
        peers = [
            Peer("pilotlight", await _ready(ready), psutil.Process(ours.pid)),
            Peer("Strawberry as it comes", await _read_when_written(port_file), psutil.Process(strawberry.pid)),
        ]
        caller = Caller(session, peers[0].url)
        for _ in range(ROWS):
            await caller.create()
        rows = (await _ask(session, peers[0].url, {"query": ALL}))["data"]["instances"]["nodes"]
        if yoga_folder is not None:
            peers.append(start_yoga(stack, yoga_folder, home, rows))
        questions = {
            "list of 50": orjson.dumps({"query": LIST}),
            "one instance": orjson.dumps({"query": ONE, "variables": {"id": rows[7]["id"]}}),
        }
        async with aiohttp.ClientSession(headers=headers) as session:
            if not await _agree(session, peers, questions):
                return False
        for what, body in questions.items():
            for connections in (1, 16):
                for number in range(ROUNDS + 1):
                    for peer in peers:
                        # A new session each time: servers close connections that were idle for long.
                        async with aiohttp.ClientSession(headers=headers) as session:
                            used, rate = await _round(session, peer, body, connections, seconds if number else 0.5)
                        if number:
                            peer.note((what, connections), used, rate)
                _print(peers, what, connections)
        async with _changing(url), aiohttp.ClientSession(headers=headers) as session:
            for number in range(ROUNDS + 1):
                used, rate = await _round(session, peers[0], questions["list of 50"], 16, seconds if number else 0.5)
                if number:
                    peers[0].note((CHANGING, 16), used, rate)
        _print(peers[:1], CHANGING, 16)
        return _verdict(peers)


@asynccontextmanager
async def _changing(url: str) -> AsyncGenerator[None]:
    """Changes rows of the page while it is read, so that fewer kept rows can be used."""
    connection = await asyncpg.connect(url)

    async def change() -> None:
        while True:
            await connection.execute(CHANGE)
            await asyncio.sleep(1 / CHANGES_PER_SECOND)

    changing = asyncio.create_task(change())
    try:
        yield
    finally:
        changing.cancel()
        await asyncio.wait([changing])
        connection.terminate()


async def _agree(session: aiohttp.ClientSession, peers: list[Peer], questions: dict[str, bytes]) -> bool:
    """The last of three responses counts: the first is not compiled."""
    is_same = True
    for what, body in questions.items():
        answers = [[await _ask(session, peer.url, orjson.loads(body)) for _ in range(3)][-1] for peer in peers]
        data = [answer["data"] for answer in answers if "errors" not in answer]  # ours also has `extensions`
        same = len(data) == len(peers) and all(each == data[0] for each in data)
        print(f"{what}: {len(orjson.dumps(answers[0])):,} bytes, responses {'are equal' if same else 'DIFFER'}")
        is_same = is_same and same
    return is_same


async def _round(
    session: aiohttp.ClientSession, peer: Peer, body: bytes, connections: int, seconds: float
) -> tuple[float, float]:
    until = time.perf_counter() + seconds
    done = 0

    async def one_after_another() -> None:
        nonlocal done
        while time.perf_counter() < until:
            async with session.post(peer.url, data=body) as response:
                await response.read()
                if response.status != 200:
                    raise SystemExit(f"{peer.name} answered {response.status}")
            done += 1

    used, began = sum(peer.process.cpu_times()[:2]), time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(connections)))
    return (sum(peer.process.cpu_times()[:2]) - used) / done, done / (time.perf_counter() - began)


def _print(peers: list[Peer], what: str, connections: int) -> None:
    for peer in peers:
        cpu, rate = median(peer.cpu[what, connections]), median(peer.rate[what, connections])
        print(f"{what:>18}, {connections:>2} at once: {peer.name:<24} {rate:7,.0f}/s   {cpu * 1000:6.2f} ms CPU")


def _verdict(peers: list[Peer]) -> bool:
    """By the page of 50 at 16 connections, where start-up and idle time matter least."""
    what = ("list of 50", 16)
    ours = median(peers[0].cpu[what])
    of_strawberry = median(peers[1].cpu[what]) / ours
    is_enough = of_strawberry >= LEAST_OF_STRAWBERRY
    verdict = "PASS" if is_enough else "FAIL"
    print(f"Strawberry as it comes takes {of_strawberry:.1f} x our CPU: {verdict} (at least {LEAST_OF_STRAWBERRY})")
    if len(peers) == 2:
        print("graphql-yoga was not measured: that needs node, npm and a registry")
        return is_enough
    changing = median(peers[0].cpu[CHANGING, 16]) / median(peers[2].cpu[what])
    print(f"with {CHANGES_PER_SECOND} changes of its rows a second it is {changing:.2f} x")
    of_yoga = ours / median(peers[2].cpu[what])
    verdict = "PASS" if of_yoga <= MAX_OF_YOGA else "FAIL"
    print(f"ours is {of_yoga:.2f} x graphql-yoga's CPU, which reads from memory: {verdict} (at most {MAX_OF_YOGA})")
    return is_enough and of_yoga <= MAX_OF_YOGA


def installed(*packages: str) -> Path | None:
    """The folder in which npm packages are installed once; None if they can't be installed."""
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pilotlight-bench"
    if any(not (folder / "node_modules" / each.rpartition("@")[0]).exists() for each in packages):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "package.json").exists():
            (folder / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", *packages]
        installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if installed.returncode != 0:
            print(f"npm install failed: {installed.stderr.strip().splitlines()[-1:]}")
            return None
    return folder


def start_yoga(stack: AsyncExitStack, folder: Path, home: Path, rows: list[Any]) -> Peer:
    data = home / "rows.json"
    data.write_bytes(orjson.dumps(rows))
    script = Path(__file__).with_name("graphql_yoga.mjs")
    process = _start(stack, ["node", str(script), str(folder), str(data)], {"NODE_ENV": "production"})
    return Peer("graphql-yoga, from memory", _line(process), psutil.Process(process.pid))


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(url, data=orjson.dumps(body)) as response:
        return orjson.loads(await response.read())


async def _read_when_written(file: Path) -> str:
    deadline = time.monotonic() + 180
    while not file.exists() or not file.read_text():
        if time.monotonic() > deadline:
            raise SystemExit("the other server did not start")
        await asyncio.sleep(0.05)
    return file.read_text()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each round")
    arguments = parser.parse_args()
    sys.exit(0 if uvloop.run(main(arguments.seconds)) else 1)
