"""A thousand instances checked at once by one worker process: its CPU and memory, next to bare aiohttp.

    python -m bench.probes [--instances 1000] [--hold 5]
    python -m bench.probes --watch 10000 [--interval 60] [--seconds 120]

Each instance has one endpoint, whose server holds the answer back for `--hold` seconds, so that all probes are in
flight together; the server counts them. The worker reads, probes, writes the result, sets the instance to READY and
ends its operation, all in PostgreSQL (about fifteen statements for each); bare aiohttp only sends the same requests and
reads the answers, and so do the probes alone, with the guard on each socket and the check of the page's content.

With `--watch`, that many READY instances are watched by one worker process: its share of a CPU, and how late the
probes are.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from pydantic import SecretStr

from server.clock import new_id, now
from server.config import Settings
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.db.tables import Instance, Operation, Project
from server.enums import InstanceStatus, OperationKind, OperationPhase, OperationStatus
from server.observe import logs, metrics
from server.observe.counters import BOUNDS
from server.probes.plan import CheckPlan, ProbeTarget
from server.probes.probe import Prober
from server.queue.enqueue import enqueue, enqueue_many
from server.queue.kinds import CheckHealth, WatchHealth
from server.runtime import Runtime
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from server.ssrf import PrivateAddresses, raise_socket_limits

WAITING = "SELECT count(*) FROM instance WHERE status <> 'READY'"
UNHEALTHY = "SELECT count(*) FROM probe_result WHERE NOT is_healthy"


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


async def watch(instances: int, interval: float, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="pilotlight-bench-") as folder:
        async with EmbeddedPostgres(Path(folder) / "home") as running:
            await upgrade(running.url)
            server = await start("server", "0")
            try:
                await fill_ready(running.url, int((await line(server))["port"]), instances)
                found = await finished("watcher", running.url, str(interval), str(seconds))
            finally:
                server.terminate()
                await server.wait()
    took, probes = found["seconds"], found["probes"]
    print(f"{instances} READY instances, each probed every {interval:g} s, watched for {took:.0f} s by one worker\n")
    print(f"probes           {probes} ({probes / took:.0f} per second; wanted {instances / interval:.0f})")
    print(f"unhealthy        {found['unhealthy']}")
    print(f"worker's CPU     {found['cpu'] / took:.1%} of one core, {found['cpu'] / max(probes, 1) * 1000:.2f} ms each")
    print(f"worker's memory  {found['peak_mb']:.0f} MB at most")
    print(f"late             {found['late'] / max(probes, 1):.2f} s on average")
    for bound, share in found["within"].items():
        print(f"  within {bound:>4} s  {share:.2%}")


async def fill_ready(url: str, port: int, instances: int) -> None:
    """READY rows, and the job that finds them."""
    database = Database(url)
    moment = now()
    project = Project(id=new_id(), name="bench")
    async with database.write() as session:
        session.add(project)
        await session.flush()
        ready = {"status": InstanceStatus.READY, "ready_at": moment}
        session.add_all(_instance(project, new_id(), port, moment, **ready) for _ in range(instances))
        await enqueue(session, WatchHealth())
    await database.close()


async def watch_all(database_url: str, interval: float, seconds: float) -> None:
    """One worker process, measured from when all instances have been probed once."""
    logs.configure(level="warning", format="json")
    async with running(database_url, health_check_interval=timedelta(seconds=interval)) as runtime:
        runtime.work()
        await asyncio.sleep(interval)
        before, began = measured(), time.perf_counter()
        times = lateness()
        await asyncio.sleep(seconds)
        counts = [after - earlier for after, earlier in zip(lateness()[0], times[0], strict=True)]
        bounds = ("1.0", "2.5", "5.0", "10.0")
        tell(
            {
                **usage(before, began),
                "probes": counts[-1],
                "late": lateness()[1] - times[1],
                "within": {bound: counts[BOUNDS.index(float(bound))] / max(counts[-1], 1) for bound in bounds},
                "unhealthy": await runtime.database.raw.fetchval(UNHEALTHY),
            }
        )


@asynccontextmanager
async def running(database_url: str, **settings: Any) -> AsyncIterator[Runtime]:
    """Only machines of a simulator may serve on loopback. It has none of these, so nothing is compared with it."""
    known = Settings(reconcile_interval=timedelta(hours=1), **settings)
    async with Simulator(SimulatorOptions()) as simulator:
        key = SecretStr(simulator.api_key)
        async with Runtime(known, database_url=database_url, novita_url=simulator.url, novita_key=key) as runtime:
            yield runtime


def lateness() -> tuple[list[float], float]:
    """Cumulative counts by bound, the last of them all, and the sum of seconds."""
    (family,) = metrics.WATCH_LATENESS.collect()
    counts = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
    return counts, next(sample.value for sample in family.samples if sample.name.endswith("_sum"))


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


def _instance(project: Project, id: Any, port: int, moment: Any, **fields: Any) -> Instance:
    return Instance(
        id=id,
        project_id=project.id,
        name=id.hex,
        **{"status": InstanceStatus.HEALTH_CHECKING, **fields},
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
    async with running(database_url, health_check_timeout=timedelta(seconds=60)) as runtime:
        pool = runtime.database.raw
        await pool.fetchval(WAITING)
        before = measured()
        began = time.perf_counter()
        runtime.work()
        while await pool.fetchval(WAITING):  # noqa: ASYNC110 - other code changes the rows
            await asyncio.sleep(0.1)
        report(before, began)


async def bare(port: int, instances: int) -> None:
    raise_socket_limits()
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
    raise_socket_limits()
    before = measured()
    began = time.perf_counter()
    prober = Prober(private_addresses=PrivateAddresses.LOOPBACK)
    length = timedelta(minutes=1)
    plan = CheckPlan(timeout=length, retries=0, delay=length, max_wait=length)
    target = ProbeTarget(80, "http", f"http://127.0.0.1:{port}/")
    findings = await asyncio.gather(*(prober.probe(target, plan) for _ in range(instances)))
    await prober.close()
    if not all(finding.is_healthy for finding in findings):
        sys.exit("not all probes were answered")
    report(before, began)


async def serve(hold: float) -> None:
    """Answers after a while, and counts how many wait; `/most` tells, and begins to count anew."""
    raise_socket_limits()
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
    tell(usage(before, began))


def usage(before: tuple[float, float], began: float) -> dict[str, Any]:
    cpu, peak = measured()
    return {"cpu": cpu - before[0], "seconds": time.perf_counter() - began, "peak_mb": peak, "idle_mb": before[1]}


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
    parser.add_argument("--watch", type=int, default=0, help="READY instances that one worker watches")
    parser.add_argument("--interval", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=120.0)
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
        case ["watcher", url, interval, seconds]:
            uvloop.run(watch_all(url, float(interval), float(seconds)))
        case _ if given.watch:
            asyncio.run(watch(given.watch, given.interval, given.seconds))
        case _:
            asyncio.run(main(given.instances, given.hold))
