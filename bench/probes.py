"""A thousand instances checked at once by one worker process: its CPU and memory, next to bare aiohttp.

    python -m bench.probes [--instances 1000] [--hold 5]

Each instance has one endpoint, whose server holds the answer back for `--hold` seconds, so that all probes are in
flight together; the server counts them. The worker reads, probes, writes the result, moves the instance to READY and
ends its operation, all in PostgreSQL (about fifteen statements for each); bare aiohttp only sends the same requests and
reads the answers, and so do the probes alone, with the guard on each socket and a look at what the page says.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from pydantic import SecretStr

from server.clock import new_id, now
from server.config import Settings
from server.db.embedded import EmbeddedPostgres
from server.db.engine import Database
from server.db.migrate import upgrade
from server.db.tables import Instance, Operation, Project
from server.guard import Inside, allow_many_sockets
from server.observe import logs
from server.probes.plan import Plan, Target
from server.probes.probe import Prober
from server.queue.enqueue import enqueue_many
from server.queue.kinds import CheckHealth
from server.runtime import Runtime
from server.words import InstanceStatus, OperationKind, OperationPhase, OperationStatus

WAITING = "SELECT count(*) FROM instance WHERE status <> 'READY'"


async def main(instances: int, hold: float) -> None:
    with tempfile.TemporaryDirectory(prefix="pilotlight-bench-") as folder:
        async with EmbeddedPostgres(Path(folder) / "home") as running:
            await upgrade(running.url)
            server = await start("server", str(hold))
            try:
                port = int((await line(server))["port"])
                bare = await finished("bare", str(port), str(instances))
                peak_bare = (await count(port))["most"]
                alone = await finished("prober", str(port), str(instances))
                peak_alone = (await count(port))["most"]
                await fill(running.url, port, instances)
                worker = await finished("worker", running.url)
                peak = (await count(port))["most"]
            finally:
                server.terminate()
                await server.wait()
    print(f"{instances} endpoints, each answering after {hold:g} s\n")
    print(f"{'':14}{'in flight':>10}{'seconds':>10}{'CPU s':>10}{'CPU ms each':>13}{'peak MB':>10}{'over idle':>11}")
    for name, found, most in (
        ("bare aiohttp", bare, peak_bare),
        ("probes alone", alone, peak_alone),
        ("worker", worker, peak),
    ):
        each = found["cpu"] / instances * 1000
        print(
            f"{name:14}{most:>10}{found['seconds']:>10.2f}{found['cpu']:>10.2f}{each:>13.2f}"
            f"{found['peak_mb']:>10.0f}{found['peak_mb'] - found['idle_mb']:>11.0f}"
        )
    probes, all_of_it = alone["cpu"] / bare["cpu"], worker["cpu"] / bare["cpu"]
    print(f"\nof the CPU of bare aiohttp: probes {probes:.1f} x, worker {all_of_it:.1f} x")
    if peak < instances:
        sys.exit(f"only {peak} of {instances} were in flight together")


async def fill(url: str, port: int, instances: int) -> None:
    """Rows as they are when the machines have just come up."""
    database = Database(url)
    moment = now()
    project = Project(id=new_id(), name="bench")
    ids = [(new_id(), new_id()) for _ in range(instances)]
    async with database.write() as session:
        session.add(project)
        await session.flush()
        session.add_all(_instance(project, id, port, moment) for id, _ in ids)
        await session.flush()
        session.add_all(_operation(project, id, operation_id, moment) for id, operation_id in ids)
        await session.flush()
        await enqueue_many(session, [CheckHealth(id, operation_id) for id, operation_id in ids])
    await database.close()


def _instance(project: Project, id: Any, port: int, moment: Any) -> Instance:
    return Instance(
        id=id,
        project_id=project.id,
        name=id.hex,
        status=InstanceStatus.HEALTH_CHECKING,
        version=1,
        product_name="RTX 4090 24GB",
        gpu_count=1,
        rootfs_size_gb=60,
        billing="SPOT",
        image="nginx",
        novita_id=id.hex,
        ports=[{"port": 80, "type": "http"}],
        endpoints=[{"port": 80, "type": "http", "address": f"http://127.0.0.1:{port}/"}],
        running_at=moment,
        created_at=moment,
        updated_at=moment,
        status_since=moment,
    )


def _operation(project: Project, instance_id: Any, id: Any, moment: Any) -> Operation:
    return Operation(
        id=id,
        project_id=project.id,
        instance_id=instance_id,
        kind=OperationKind.CREATE,
        status=OperationStatus.RUNNING,
        phase=OperationPhase.CHECKING_HEALTH,
        version=1,
        created_at=moment,
        started_at=moment,
    )


async def work(database_url: str) -> None:
    """One worker process, as `pilotlight worker` has it."""
    logs.configure(level="warning", format="json")
    settings = Settings(health_check_timeout=timedelta(seconds=60))
    key = SecretStr("none")
    async with Runtime(settings, database_url=database_url, novita_url="http://127.0.0.1:1", novita_key=key) as runtime:
        pool = runtime.database.raw
        await pool.fetchval(WAITING)
        before = measured()
        began = time.perf_counter()
        runtime.work()
        while await pool.fetchval(WAITING):  # noqa: ASYNC110 - other code changes the rows
            await asyncio.sleep(0.1)
        report(before, began)


async def bare(port: int, instances: int) -> None:
    allow_many_sockets()
    before = measured()
    began = time.perf_counter()
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def get() -> None:
            async with session.get(f"http://127.0.0.1:{port}/") as response:
                await response.read()

        await asyncio.gather(*(get() for _ in range(instances)))
    report(before, began)


async def probe(port: int, instances: int) -> None:
    """The probes of a worker without the worker."""
    allow_many_sockets()
    before = measured()
    began = time.perf_counter()
    prober = Prober(inside=Inside.LOOPBACK)
    length = timedelta(minutes=1)
    plan = Plan(timeout=length, retries=0, delay=length, max_wait=length)
    target = Target(80, "http", f"http://127.0.0.1:{port}/")
    findings = await asyncio.gather(*(prober.probe(target, plan) for _ in range(instances)))
    await prober.close()
    if not all(finding.is_healthy for finding in findings):
        sys.exit("not all probes were answered")
    report(before, began)


async def serve(hold: float) -> None:
    """Answers after a while, and counts how many wait; `/most` tells, and begins to count anew."""
    allow_many_sockets()
    waiting = most = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting, most
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /most "):
            body, most = json.dumps({"most": most}).encode(), 0
        else:
            waiting += 1
            most = max(most, waiting)
            await asyncio.sleep(hold)
            waiting -= 1
            body = b"<html><title>Welcome</title><body>It works.</body></html>"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=4096)
    tell({"port": server.sockets[0].getsockname()[1]})
    await server.serve_forever()


async def count(port: int) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/most") as response:
        return json.loads(await response.read())


def measured() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def report(before: tuple[float, float], began: float) -> None:
    cpu, peak = measured()
    found = {"cpu": cpu - before[0], "seconds": time.perf_counter() - began, "peak_mb": peak, "idle_mb": before[1]}
    tell(found)


def tell(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


async def start(*role: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.probes",
        "--role",
        *role,
        stdout=asyncio.subprocess.PIPE,
        stderr=None,
        env={**os.environ, "LOG_LEVEL": "error"},
    )


async def finished(*role: str) -> dict[str, Any]:
    process = await start(*role)
    found = await line(process)
    await process.wait()
    return found


async def line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    if process.stdout is None:
        raise TypeError("a process without output")
    while True:
        read = await process.stdout.readline()
        if read.startswith(b"{"):
            return json.loads(read)
        if not read:
            raise RuntimeError("a process ended before it said anything")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--hold", type=float, default=5.0)
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    match given.role:
        case ["server", hold]:
            uvloop.run(serve(float(hold)))
        case ["bare", port, instances]:
            uvloop.run(bare(int(port), int(instances)))
        case ["prober", port, instances]:
            uvloop.run(probe(int(port), int(instances)))
        case ["worker", url]:
            uvloop.run(work(url))
        case _:
            asyncio.run(main(given.instances, given.hold))
