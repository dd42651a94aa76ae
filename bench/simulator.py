"""How fast the simulator answers gets and list pages of 100, at 10 and at 100,000 instances.

The simulator runs in a process of its own (one core); the load comes from this one, over loopback, on a fixed
number of connections, each waiting for its answer before it asks again.

Run it as `python -m bench.simulator`; started by its path, scripts of this folder would hide modules of Python's own.
"""

import argparse
import asyncio
import math
import multiprocessing
import resource
import secrets
import time
from multiprocessing.connection import Connection

import orjson
import psutil

from server.simulator.__main__ import fast_loop, relax_collector
from server.simulator.options import SimulatorOptions
from server.simulator.requests import ApiRequest
from server.simulator.routes.create_instance import create_instance
from server.simulator.server import Simulator

PREFIX = "/gpu-instance/openapi/v1"
CONNECTIONS = 16
NEEDED = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100_000])
    given = parser.parse_args()
    for size in given.sizes:
        print(f"{size:,} instances")
        measure(size, given.seconds)


def measure(size: int, seconds: float) -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=simulate, args=(size, theirs), daemon=True)
    process.start()
    port, ids, took = ours.recv()
    print(f"  made in {took:.1f} s ({size / took:,.0f}/s)")
    pages = max(1, size // 100)
    marker = f"bench-{size // 2:08d}-"
    requests = {
        "get": [f"/gpu/instance?instanceId={each}" for each in ids],
        "list, pages of 100": [f"/gpu/instances?pageSize=100&pageNum={page + 1}" for page in range(pages)],
        "list by status": [
            f"/gpu/instances?pageSize=100&status=running&pageNum={page % pages + 1}" for page in range(64)
        ],
        "find by name": [f"/gpu/instances?pageSize=10&name={marker}"],
    }
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        before = busy(process.pid)
        runner.run(one_connection(port, requests["list, pages of 100"], 0, 1, most=pages))
        used = busy(process.pid) - before
        print(f"  a first walk over all {pages:,} pages of 100 takes {used:.2f} s of its core")
        for what, paths in requests.items():
            before = busy(process.pid)
            count, took = runner.run(load(port, paths, seconds))
            on_one_core = count / (busy(process.pid) - before)
            verdict = "" if on_one_core >= NEEDED else f"   BELOW {NEEDED:,}"
            print(f"  {what:<20} {count / took:>7,.0f} requests/s  {on_one_core:>7,.0f} a second of its core{verdict}")
    ours.send("stop")
    print(f"  simulator's peak memory {ours.recv() / 1024:,.0f} MB")
    process.join(10)


def simulate(size: int, pipe: Connection) -> None:
    relax_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(serve(size, pipe))


async def serve(size: int, pipe: Connection) -> None:
    options = SimulatorOptions(speed=1000, stock_factor=size, max_listeners=16)
    async with Simulator(options) as simulator:
        started = time.perf_counter()
        for number in range(size):
            body = {
                "name": f"bench-{number:08d}-{secrets.token_hex(12)}",
                "productId": "4090.16c62g",
                "gpuNum": 1,
                "rootfsSize": 60,
                "imageUrl": "ubuntu:22.04",
                "kind": "gpu",
                "ports": "8888/http,22/tcp",
                "envs": [{"key": "A", "value": "1"}],
            }
            create_instance(simulator.world, ApiRequest("POST /gpu/instance/create", raw_body=orjson.dumps(body)))
            if number % 500 == 0:
                await asyncio.sleep(0)
        took = time.perf_counter() - started
        deadline = time.perf_counter() + 60
        while simulator.world.index.counts().get("running") != size:
            await asyncio.sleep(0.05)
            if time.perf_counter() > deadline:
                raise SystemExit("the instances never came to run")
        pipe.send((int(simulator.url.rpartition(":")[2]), list(simulator.world.instances)[:1000], took))
        await asyncio.to_thread(pipe.recv)
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def busy(pid: int) -> float:
    """Seconds of processor time that the simulator has used: what it can do on a core that it has for itself."""
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


async def load(port: int, paths: list[str], seconds: float) -> tuple[int, float]:
    """(answers, seconds)"""
    started = time.perf_counter()
    counts = await asyncio.gather(
        *(one_connection(port, paths, start, CONNECTIONS, until=started + seconds) for start in range(CONNECTIONS))
    )
    return sum(counts), time.perf_counter() - started


async def one_connection(
    port: int, paths: list[str], start: int, stride: int, *, until: float = math.inf, most: float = math.inf
) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    count = 0
    while time.perf_counter() < until and count < most:
        path = paths[(start + count * stride) % len(paths)]
        writer.write(f"GET {PREFIX}{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer bench\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the simulator answered {head!r}")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        count += 1
    writer.close()
    return count


if __name__ == "__main__":
    main()
