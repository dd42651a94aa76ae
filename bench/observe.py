"""The cost of observability: the same requests to a server without counters, one with counters, and one that is traced.

    python -m bench.observe                 the ratios, 10 rounds of 1 s each
    python -m bench.observe --seconds 3     longer rounds

All servers run beside each other over one database and are called in short alternating rounds, so that other load
hits all of them. The server's CPU for each request is the figure to go by, the median of all rounds.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import uvloop
from aiohttp import web

from server.auth.tokens import create_token, new_secret
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.enums import Role
from server.observe import http_requests
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator

ROUNDS = 10
AT_ONCE = 8
# What counting may add to a request's CPU at most. Measured by itself: beside other work on the machine, the servers
# below differ by more than that from one run to the next.
WANTED = 0.05
TIMES = 50_000

QUERY = "{ instances(first: 10) { nodes { id name status createdAt } } }"
CREATE = """mutation ($name: String!) {
  createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx"}) { errors { code } }
}"""
# Counts nothing and traces nothing: every counter's and histogram's own method is gone, and so is the wrapper of
# requests. What is left is the server without any observability.
BARE = """
from server.observe import counters, http_requests
counters.Counter.add = counters.Histogram.observe = counters.Buckets.observe = lambda *_, **__: None
http_requests.classify_request = lambda *_: None
async def call(self, scope, receive, send):
    await self._app(scope, receive, send)
http_requests.ObservedApp.__call__ = call
from server.cli.main import main
main()
"""
PLAIN = "from server.cli.main import main; main()"


@dataclass
class Server:
    name: str
    url: str
    pid: int
    rates: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    cpu: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


async def main(seconds: float) -> bool:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        url = (await stack.enter_async_context(EmbeddedPostgres(home))).url
        await upgrade(url)
        token = await _token(url)
        simulator = Simulator(SimulatorOptions())
        await simulator.start()
        stack.push_async_callback(simulator.stop)
        collector = await stack.enter_async_context(_collector())
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "DATABASE_URL": url,
            "NOVITA_API_KEY": simulator.api_key,
            "NOVITA_API_BASE_URL": simulator.url,
            "LOG_LEVEL": "warning",
            "LOG_FORMAT": "json",
            "REQUEST_RATE_LIMIT": "0",
            "REQUEST_RATE_LIMIT_PER_PROJECT": "0",
            "MAX_PENDING_CREATES": "0",  # no worker runs
        }
        traced = {**env, "OTEL_EXPORTER_OTLP_ENDPOINT": collector}
        some = {**traced, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}
        servers = [
            await stack.enter_async_context(_server(name, code, settings, home))
            for name, code, settings in (
                ("nothing counted", BARE, env),
                ("counted", PLAIN, env),
                ("counted, one request in ten traced", PLAIN, some),
                ("counted, every request traced", PLAIN, traced),
            )
        ]
        http = await stack.enter_async_context(aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}))
        for workload in ("query", "create"):
            for server in servers:
                await _load(http, server, workload, 1.0)  # caches, plans, compiled selections
                server.rates[workload], server.cpu[workload] = [], []
            for _ in range(ROUNDS):
                for server in servers:
                    await _load(http, server, workload, seconds)
        return _report(servers, await _counting())


async def _counting() -> float:
    """Seconds that counting adds to one request, in this process and without a server around it."""

    async def send(_message: Any) -> None:
        pass

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def carry(scope: Any, receive: Any, send: Any) -> None:
        http_requests.classify_request("query", ["instances"])
        await answer(scope, receive, send)

    scope = {"type": "http", "headers": [(b"host", b"x"), (b"authorization", b"y"), (b"content-type", b"z")]}
    taken: list[float] = []
    for app in (answer, http_requests.ObservedApp(carry)):
        began = time.process_time()
        for _ in range(TIMES):
            await app(scope, send, send)
        taken.append((time.process_time() - began) / TIMES)
    return taken[1] - taken[0]


async def _load(http: aiohttp.ClientSession, server: Server, workload: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    done = 0

    async def ask_on() -> None:
        nonlocal done
        while time.monotonic() < until:
            body: dict[str, Any] = {"query": QUERY}
            if workload == "create":
                body = {"query": CREATE, "variables": {"name": uuid4().hex}}
            async with http.post(server.url, json=body) as response:
                answer = await response.json()
                if "errors" in answer or (answer["data"].get("createInstance") or {}).get("errors"):
                    raise RuntimeError(f"{server.name}: {answer}")
            done += 1

    before, began = _cpu_of(server.pid), time.monotonic()
    await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))
    used, taken = _cpu_of(server.pid) - before, time.monotonic() - began
    server.rates.setdefault(workload, []).append(done / taken)
    server.cpu.setdefault(workload, []).append(used / done)


def _cpu_of(pid: int) -> float:
    """Seconds that its threads have run. The usual figure is in hundredths, which is ten requests here."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _report(servers: list[Server], counting: float) -> bool:
    for workload in ("query", "create"):
        bare = statistics.median(servers[0].cpu[workload])
        print(f"\n{workload}: {AT_ONCE} at once, {ROUNDS} rounds")
        print(f"  {'':36} {'requests/s':>11} {'CPU each':>10} {'of the bare':>12}")
        for server in servers:
            cpu = statistics.median(server.cpu[workload])
            rate = statistics.median(server.rates[workload])
            print(f"  {server.name:36} {rate:9.0f}/s {cpu * 1e6:7.0f} us {bare / cpu:11.2f}x")
    part = counting / min(servers[0].cpu["query"])
    is_kept = part <= WANTED
    print(f"\ncounting by itself: {counting * 1e6:.1f} us, {part:.2%} of the cheapest query")
    print(f"{'kept' if is_kept else 'NOT KEPT'}: at most {WANTED:.0%}")
    return is_kept


@asynccontextmanager
async def _server(name: str, code: str, env: dict[str, str], home: Path) -> AsyncIterator[Server]:
    file = home / f"{uuid4().hex}.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, "serve", "--port", "0", "--ready-file", str(file), env=env, cwd=Path.cwd()
    )
    try:
        deadline = time.monotonic() + 180
        while not file.exists():
            if process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not start")
            await asyncio.sleep(0.05)
        url = str(json.loads(file.read_text())["graphqlUrl"])
        yield Server(name, url, process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def _collector() -> AsyncIterator[str]:
    """Accepts every export without decoding it, so that its own CPU does not show in the figures."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def _token(url: str) -> str:
    secret = new_secret()
    database = Database(url)
    try:
        async with database.write() as session:
            await create_token(session, project="bench", name="bench", role=Role.OPERATOR, secret=secret)
    finally:
        await database.close()
    return secret


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each round takes")
    sys.exit(0 if uvloop.run(main(parser.parse_args().seconds)) else 1)
