"""What it costs to watch N moving instances for a minute: provider calls, and the worker's CPU.

    python -m bench.monitor                          100, 1,000 and 10,000 instances, one minute each
    python -m bench.monitor --sizes 100 --seconds 20

The simulator runs in a process of its own and its machines never get beyond pulling; the worker is one `pilotlight
worker` process with its default settings but for the number of slots. Calls are counted by the simulator.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg
import orjson
import psutil
import uvloop

from server.clock import new_id
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.simulator.options import SimulatorOptions
from server.simulator.requests import ApiRequest
from server.simulator.routes.create_instance import create_instance
from server.simulator.server import Simulator

PAGE = 100
SLOWEST = 0.0001  # simulated seconds a second: what was made a moment ago stays where it is
PILOTLIGHT = str(Path(sys.executable).with_name("pilotlight"))


async def main(sizes: list[int], seconds: float, limit: int) -> None:
    print(f"NOVITA_RATE_LIMIT={limit} ({'off' if not limit else 'calls a minute'}), {seconds:.0f} s each")
    for size in sizes:
        async with AsyncExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
            url = (await stack.enter_async_context(EmbeddedPostgres(home))).url
            await upgrade(url)
            provider, ids, status = _simulator(stack, size)
            await fill(url, ids, status)
            await measure(stack, url, provider, size, seconds, limit)


async def measure(stack: AsyncExitStack, url: str, provider: str, size: int, seconds: float, limit: int) -> None:
    env = {
        "DATABASE_URL": url,
        "NOVITA_API_KEY": "sk_bench",
        "NOVITA_API_BASE_URL": provider,
        "NOVITA_RATE_LIMIT": str(limit),
        "INSTANCE_MAX_WAIT": "1h",
        "RECONCILE_INTERVAL": "1h",
        "MAX_CONCURRENT_JOBS": "100",
        "LOG_LEVEL": "warning",
    }
    worker = _worker(env)
    stack.callback(_end, worker)
    connection = await asyncpg.connect(url)
    stack.push_async_callback(connection.close)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    await asyncio.sleep(8)  # started, and over the first rush: all were due at once
    process = psutil.Process(worker.pid)
    before, cpu, began = await _calls(session, provider), _cpu(process), time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    after = await _calls(session, provider)
    used = _cpu(process) - cpu
    routes = {route: many - before.get(route, 0) for route, many in after.items() if many > before.get(route, 0)}
    minute = 60 / took
    seen = await connection.fetchval(
        "SELECT count(*) FROM instance WHERE observed_at > now() - make_interval(secs => $1)", took
    )
    late = "SELECT count(*) FROM job WHERE status = 'WAITING' AND run_at < now() - interval '10 seconds'"
    stuck = await connection.fetchval(late)
    calls = sum(routes.values())
    pages = -(-size // PAGE)
    print(
        f"{size:>7,} instances ({pages:>3} pages): {calls * minute:7.1f} calls a minute"
        f" = {calls * minute / pages:5.1f} a page, {calls * minute / size:6.3f} an instance;"
        f" worker CPU {used / took:5.1%}; seen {seen:,}; jobs late by 10 s: {stuck:,}; {routes}"
    )


async def fill(url: str, ids: list[str], status: str) -> None:
    """Rows as they are some minutes after a create: STARTING, with an open operation and a monitor."""
    connection = await asyncpg.connect(url)
    project = new_id()
    await connection.execute("INSERT INTO project (id, name) VALUES ($1, 'bench')", project)
    rows = [(new_id(), new_id(), novita_id) for novita_id in ids]
    await connection.executemany(
        "INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image,"
        " novita_id, novita_status) VALUES ($1, $2, $3, 'STARTING', 'RTX 4090 24GB', 1, 60, 'SPOT', 'nginx', $3, $4)",
        [(instance_id, project, novita_id, status) for instance_id, _, novita_id in rows],
    )
    await connection.executemany(
        "INSERT INTO operation (id, project_id, instance_id, kind, status, phase)"
        " VALUES ($1, $2, $3, 'CREATE', 'RUNNING', 'PROVISIONING')",
        [(operation_id, project, instance_id) for instance_id, operation_id, _ in rows],
    )
    await connection.executemany(
        "INSERT INTO job (kind, args, priority, project_id, instance_id, run_at, due_at)"
        " VALUES ('MONITOR_INSTANCE', $1::jsonb, 1, $2, $3, now(), now())",
        [(_args(instance_id, operation_id), project, instance_id) for instance_id, operation_id, _ in rows],
    )
    await connection.execute("UPDATE instance SET status_since = now() - interval '10 minutes'")
    await connection.close()


def _worker(env: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([PILOTLIGHT, "worker"], env=os.environ | env, stdout=subprocess.DEVNULL)


def _args(instance_id: UUID, operation_id: UUID) -> str:
    return orjson.dumps({"instance_id": str(instance_id), "operation_id": str(operation_id)}).decode()


def _simulator(stack: AsyncExitStack, size: int) -> tuple[str, list[str], str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=simulate, args=(size, theirs), daemon=True)
    process.start()
    stack.callback(process.join, 10)
    stack.callback(ours.send, None)
    return ours.recv()


def simulate(size: int, pipe: Connection) -> None:
    uvloop.run(_simulate(size, pipe))


async def _simulate(size: int, pipe: Connection) -> None:
    async with Simulator(SimulatorOptions(speed=SLOWEST, stock_factor=100_000, max_listeners=0)) as simulator:
        world = simulator.world
        product, cluster = next(iter(world.catalog.total))
        for number in range(size):
            body: dict[str, Any] = {
                "name": f"bench-{number:08d}",
                "productId": product,
                "clusterId": cluster,
                "gpuNum": 1,
                "rootfsSize": 60,
                "imageUrl": "nginx",
                "kind": "gpu",
                "ports": "80/http",
            }
            create_instance(world, ApiRequest("POST /gpu/instance/create", raw_body=orjson.dumps(body)))
        pipe.send((simulator.url, list(world.instances), next(iter(world.instances.values())).status))
        await asyncio.to_thread(pipe.recv)


async def _calls(session: aiohttp.ClientSession, provider: str) -> dict[str, int]:
    async with session.get(f"{provider}/control/state") as response:
        return orjson.loads(await response.read())["calls"]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--limit", type=int, default=100, help="NOVITA_RATE_LIMIT of the worker; 0 turns it off")
    given = parser.parse_args()
    uvloop.run(main(given.sizes, given.seconds, given.limit))
