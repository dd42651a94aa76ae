"""Ends of lifetimes at their time, metrics of idle instances within their share, and heartbeats.

    python -m bench.lifetimes                       all four
    python -m bench.lifetimes ends --ends 10000     only one of: ends, drain, idle, heartbeats

`ends`: 10,000 ends within a minute, each announced a minute before, by one `pilotlight worker` with default settings.
Lateness is taken by a trigger, with the database's clock, when the operation is written.
`drain`: as many ends at the same rate, in ten parts with pauses between them. Another process drains jobs that do
nothing; its drains beside each part are compared with those just before it, so that other work slows both.
`idle`: 1,000 instances whose windows are all to be read at once; the simulator counts the calls.
`heartbeats`: over HTTP, one mutation each, from many connections.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

import aiohttp
import asyncpg
import orjson
import psutil
import uvloop

from bench.create import PILOTLIGHT, _ready, _start, _token
from bench.monitor import _calls
from schema import ids
from server.clock import new_id
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.simulator.options import SimulatorOptions
from server.simulator.requests import ApiRequest
from server.simulator.routes.create_instance import create_instance
from server.simulator.server import Simulator

SPREAD, ANNOUNCED = 60.0, 60.0  # seconds
LATENESS_MAX = 5.0  # seconds, p99
DRAIN_MIN = 0.9
BEATS_MIN = 2000.0  # a second
DRAINED, PARTS = 2_000, 10
LEAD = 2.0  # seconds between arming a part and its first end
STOPPED_AFTER = 5.0  # seconds; the machines of the last ends have stopped by then, and nothing follows

AUDIT = """
    CREATE TABLE bench_due (instance_id uuid PRIMARY KEY, at timestamptz NOT NULL);
    CREATE TABLE bench_end (instance_id uuid PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE FUNCTION bench_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO bench_end (instance_id) VALUES (NEW.instance_id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER bench_ended AFTER INSERT ON operation FOR EACH ROW EXECUTE FUNCTION bench_note();
"""
READY = """
    INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image,
        novita_id, novita_status, running_at, ready_at, run_accepted_at, lifetime, lifetime_state, lifetime_due_at,
        lifetime_action, lifetime_reason)
    VALUES ($1, $2, $3, 'READY', 'RTX 4090 24GB', 1, 60, 'SPOT', 'nginx', $3, 'running', now(), now(), now(), $4::jsonb,
        '{}', now() + interval '1 d', 'STOP', $5)
"""
JOB = """
    INSERT INTO job (kind, args, priority, project_id, instance_id, unique_key, run_at, due_at, pause)
    SELECT 'END_LIFETIME', jsonb_build_object('instance_id', id), 0, project_id, id, 'lifetime ' || id,
        now() + interval '1 d', now() + interval '1 d', NULL
    FROM instance
"""
# Ends from `$1` seconds on, over `$2` seconds, of `$3` instances that have none; `$4` announcements of two were sent.
ARM = """
    WITH due AS (
        SELECT id, now() + make_interval(secs => $1 + $2 * (row_number() OVER (ORDER BY id)) / $3) AS at
        FROM instance WHERE NOT EXISTS (SELECT FROM bench_due WHERE instance_id = instance.id) ORDER BY id LIMIT $3
    ), armed AS (
        UPDATE instance SET run_accepted_at = at - interval '1 h', lifetime_due_at = at,
            lifetime_state = jsonb_build_object('told', jsonb_build_array(at, $4::int))
        FROM due WHERE due.id = instance.id RETURNING instance.id, at
    ), noted AS (
        INSERT INTO bench_due SELECT id, at FROM armed
    ), woken AS (
        SELECT id, CASE WHEN $4 = 2 THEN at ELSE at - interval '60 s' END AS wake_at FROM armed
    )
    UPDATE job SET run_at = wake_at, due_at = wake_at FROM woken WHERE unique_key = 'lifetime ' || woken.id
"""
LATENESS = """
    SELECT extract(epoch FROM bench_end.at - bench_due.at)::float8 AS late
    FROM bench_due JOIN bench_end USING (instance_id)
"""


@dataclass
class Stage:
    """The database, the provider and the settings of our processes."""

    stack: AsyncExitStack
    home: Path
    url: str
    provider: str
    machines: list[str]
    connection: Any

    @property
    def env(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.url,
            "NOVITA_API_KEY": "sk_bench",
            "NOVITA_API_BASE_URL": self.provider,
            "RECONCILE_INTERVAL": "1h",
            "LOG_LEVEL": "warning",
        }

    async def fill(self, limits: dict[str, Any], reason: str) -> None:
        project = new_id()
        await self.connection.execute("INSERT INTO project (id, name) VALUES ($1, $2)", project, project.hex)
        shown = json.dumps(limits)
        await self.connection.executemany(READY, [(new_id(), project, each, shown, reason) for each in self.machines])
        await self.connection.execute(JOB)
        await self.connection.execute("VACUUM ANALYZE instance, job")

    def work(self) -> psutil.Process:
        return psutil.Process(_start(self.stack, [PILOTLIGHT, "worker"], self.env).pid)

    async def drain(self, seconds: float) -> asyncio.subprocess.Process:
        """A process of its own that drains jobs again and again, and then prints when and how fast."""
        command = [sys.executable, "-m", "bench.queue_peers", "pilotlight", self.url, "drains", "100", str(DRAINED)]
        return await asyncio.create_subprocess_exec(*command, str(seconds), stdout=subprocess.PIPE)


async def stage_for(stack: AsyncExitStack, machines: int) -> Stage:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
    url = (await stack.enter_async_context(EmbeddedPostgres(home / "postgres", durable=True))).url
    await upgrade(url)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=simulate, args=(machines, theirs), daemon=True)
    process.start()
    stack.callback(process.join, 10)
    stack.callback(ours.send, None)
    provider, made = await asyncio.to_thread(ours.recv)
    connection = await asyncpg.connect(url)
    stack.push_async_callback(connection.close)
    return Stage(stack, home, url, provider, made, connection)


def simulate(size: int, pipe: Connection) -> None:
    uvloop.run(_simulate(size, pipe))


async def _simulate(size: int, pipe: Connection) -> None:
    """Machines that run."""
    async with Simulator(SimulatorOptions(speed=10_000, stock_factor=100_000, max_listeners=0)) as simulator:
        world = simulator.world
        product, cluster = next(iter(world.catalog.total))
        body: dict[str, Any] = {
            "productId": product, "clusterId": cluster, "gpuNum": 1, "rootfsSize": 60, "imageUrl": "nginx",
            "kind": "gpu", "ports": "80/http",
        }  # fmt: skip
        for number in range(size):
            named = orjson.dumps({**body, "name": f"bench-{number:08d}"})
            create_instance(world, ApiRequest("POST /gpu/instance/create", raw_body=named))
        while not all(each.status == "running" for each in world.instances.values()):
            await asyncio.sleep(0.2)
            world.advance()
        world.set_speed(1.0)
        pipe.send((simulator.url, list(world.instances)))
        await asyncio.to_thread(pipe.recv)


async def measure_ends(many: int) -> bool:
    async with AsyncExitStack() as stack:
        stage, worker = await _armed(stack, many)
        await stage.connection.execute(ARM, 10.0 + ANNOUNCED, SPREAD * many / 10_000, many, 1)
        await asyncio.sleep(10 + ANNOUNCED)
        used = sum(worker.cpu_times()[:2])
        await _ended(stage, many, within=2 * SPREAD)
        return await _judge_ends(stage, many, sum(worker.cpu_times()[:2]) - used, "")


async def measure_drain(many: int) -> bool:
    """The worker has all ends armed the whole time, and in every second window a part of them due.

    If ends are so late that they come in the next window, there is nothing to compare: that is a failure, too.
    """
    async with AsyncExitStack() as stack:
        stage, worker = await _armed(stack, many)
        part, used = many // PARTS, sum(worker.cpu_times()[:2])
        window = SPREAD * part / 10_000
        draining = await stage.drain(PARTS * (2 * window + STOPPED_AFTER) + 5)
        await asyncio.sleep(5)  # until it runs
        begins: list[float] = []
        for _ in range(PARTS):
            await asyncio.sleep(window - LEAD)
            await stage.connection.execute(ARM, LEAD, window, part, 2)
            begins.append(time.time() + LEAD)
            await asyncio.sleep(LEAD + window + STOPPED_AFTER)
        output, _ = await draining.communicate()
        drains: list[tuple[float, float, float]] = json.loads(output.decode().strip().splitlines()[-1])
        await _ended(stage, PARTS * part, within=2 * SPREAD)
        is_good = await _judge_ends(stage, PARTS * part, sum(worker.cpu_times()[:2]) - used, " beside a drain")
        return _judge_drains(drains, begins, window) and is_good


def _judge_drains(drains: list[tuple[float, float, float]], begins: list[float], window: float) -> bool:
    def rate(since: float) -> float:
        rates = [each for began, ended, each in drains if since <= (began + ended) / 2 < since + window]
        return statistics.fmean(rates) if rates else 0.0

    pairs = [(rate(begin - window), rate(begin)) for begin in begins]
    ratios = [beside / without for without, beside in pairs if without and beside]
    ratio = statistics.median(ratios) if ratios else 0.0
    shown = ", ".join(f"{without:,.0f} and {beside:,.0f}" for without, beside in pairs)
    print(f"      jobs/s of a drain without ends and beside them: {shown}")
    is_good = ratio >= DRAIN_MIN and len(ratios) > PARTS / 2
    print(
        f"{'pass' if is_good else 'FAIL'}  drain beside ends: {ratio:.2f} of that without, the median of"
        f" {len(ratios)} pairs; {', '.join(f'{each:.2f}' for each in sorted(ratios))}",
        flush=True,
    )
    return is_good


async def _armed(stack: AsyncExitStack, many: int) -> tuple[Stage, psutil.Process]:
    stage = await stage_for(stack, many)
    await stage.connection.execute(AUDIT)
    worker = stage.work()
    await stage.fill({"max_duration": "PT1H", "on_end": "STOP", "warn_before": "PT10M"}, "MAX_DURATION")
    await asyncio.sleep(3)
    return stage, worker


async def _ended(stage: Stage, many: int, *, within: float) -> None:
    deadline = time.monotonic() + within
    ended = "SELECT count(*) FROM bench_end"
    while await stage.connection.fetchval(ended) < many and time.monotonic() < deadline:  # noqa: ASYNC110 - from outside
        await asyncio.sleep(0.5)


async def _judge_ends(stage: Stage, many: int, used: float, beside: str) -> bool:
    late = sorted(row["late"] for row in await stage.connection.fetch(LATENESS))
    if len(late) < many:
        print(f"FAIL: only {len(late):,} of {many:,} ends were accepted")
        return False
    cuts = statistics.quantiles(late, n=100)
    is_good = late[0] >= 0 and cuts[98] <= LATENESS_MAX
    print(
        f"{'pass' if is_good else 'FAIL'}  {many:,} ends{beside}: late by p50 {cuts[49]:.3f} s, p99 {cuts[98]:.3f} s,"
        f" at most {late[-1]:.3f} s; earliest {late[0]:+.3f} s; worker {used / many * 1000:.2f} ms CPU each",
        flush=True,
    )
    return is_good


async def measure_idle(many: int = 1000, seconds: float = 150.0) -> bool:
    """The largest number of calls in any minute after the first call, as the provider receives them."""
    async with AsyncExitStack() as stack:
        stage = await stage_for(stack, many)
        limits = {"on_end": "STOP", "warn_before": "PT10M", "idle": {"window": "PT30M", "grace": "PT15M"}}
        await stage.fill(limits, "IDLE")
        await stage.connection.execute(
            "UPDATE instance SET run_accepted_at = now() - interval '3 h', lifetime_due_at = now()"
        )
        await stage.connection.execute("UPDATE job SET run_at = now(), due_at = now()")
        session = await stack.enter_async_context(aiohttp.ClientSession())
        stage.work()
        while not (seen := _metrics(await _calls(session, stage.provider))):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.2)
        times: list[float] = []
        began = time.monotonic()
        while (moment := time.monotonic()) < began + seconds:
            calls = _metrics(await _calls(session, stage.provider))
            times += [moment] * (calls - seen)
            seen = calls
            await asyncio.sleep(0.1)
        most = max((sum(1 for each in times if first <= each < first + 60) for first in times), default=0)
        stops = await stage.connection.fetchval("SELECT count(*) FROM operation")
        is_good = 0 < most <= 20
        print(
            f"{'pass' if is_good else 'FAIL'}  {many:,} idle-watched instances, all to be read: at most {most} calls of"
            f" metrics in any 60 s, {len(times) * 60 / seconds:.1f} a minute; at most 20 are allowed (METRICS_SHARE of"
            f" NOVITA_RATE_LIMIT); {stops} ended",
            flush=True,
        )
        return is_good


def _metrics(calls: dict[str, int]) -> int:
    return sum(many for route, many in calls.items() if "metrics" in route)


async def measure_beats(processes: int, seconds: float = 8.0, connections: int = 64) -> bool:
    async with AsyncExitStack() as stack:
        stage = await stage_for(stack, 1000)
        await stage.fill({"heartbeat": "PT1H", "on_end": "STOP", "warn_before": "PT10M"}, "HEARTBEAT")
        token = await _token(stage.url)
        await stage.connection.execute("UPDATE instance SET project_id = (SELECT project_id FROM token)")
        urls: list[str] = []
        servers: list[psutil.Process] = []
        for number in range(processes):
            ready = stage.home / f"ready-{number}.json"
            command = [PILOTLIGHT, "serve", "--port", "0", "--ready-file", str(ready)]
            servers.append(psutil.Process(_start(stack, command, stage.env).pid))
            urls.append(await _ready(ready))
        rows = await stage.connection.fetch("SELECT id, version, updated_at FROM instance ORDER BY id")
        events = "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM outbox)"
        told = await stage.connection.fetchval(events)
        await _beat(urls, token, [row["id"] for row in rows], 2.0, connections)
        used = _cpu_seconds(servers)
        done, took = await _beat(urls, token, [row["id"] for row in rows], seconds, connections)
        each = (_cpu_seconds(servers) - used) / done
        after = await stage.connection.fetch("SELECT id, version, updated_at FROM instance ORDER BY id")
        beaten = await stage.connection.fetchval("SELECT count(*) FROM instance WHERE heartbeat_at IS NOT NULL")
        is_silent = after == rows and await stage.connection.fetchval(events) == told
        rate = done / took
        is_good = rate >= BEATS_MIN and is_silent and beaten == len(rows)
        print(
            f"{'pass' if is_good else 'FAIL'}  heartbeats over HTTP, {processes} API processes: {rate:,.0f} a second"
            f" (at least {BEATS_MIN:,.0f}), {each * 1000:.2f} ms CPU each;"
            f" {'no event, no version' if is_silent else 'ROWS OR EVENTS CHANGED'}",
            flush=True,
        )
        return is_good


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in processes)


async def _beat(
    urls: list[str], token: str, instances: list[UUID], seconds: float, connections: int
) -> tuple[int, float]:
    began = time.perf_counter()
    beaters: list[Beater] = []
    loop = asyncio.get_running_loop()
    for number in range(connections):
        parts = urlsplit(urls[number % len(urls)])
        requests = [_request(parts.netloc, token, each) for each in instances[number::connections]]

        def beater(requests: list[bytes] = requests) -> Beater:
            return Beater(requests, lambda: time.perf_counter() - began < seconds)

        _, protocol = await loop.create_connection(beater, parts.hostname, parts.port)
        beaters.append(protocol)
    await asyncio.gather(*(each.is_over for each in beaters))
    return sum(each.done for each in beaters), time.perf_counter() - began


def _request(host: str, token: str, instance_id: UUID) -> bytes:
    query = "mutation ($id: ID!) { heartbeat(input: {id: $id}) { nextAt errors { code } } }"
    body = orjson.dumps({"query": query, "variables": {"id": ids.format_id(ids.INSTANCE, instance_id)}})
    head = (
        f"POST /graphql HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Beater(asyncio.Protocol):
    """One connection that sends the next heartbeat when the last was answered."""

    def __init__(self, requests: list[bytes], goes_on: Callable[[], bool]) -> None:
        self._requests, self._goes_on = requests, goes_on
        self.done, self._answer = 0, b""
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(self._requests[0])

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not data.endswith(b"}}}"):  # the answer's last bytes
            return
        answer, self._answer = self._answer, b""
        if b'"nextAt":"' not in answer or b'"errors":[]' not in answer:
            self.is_over.set_exception(RuntimeError(answer.decode()))
            self._transport.close()
            return
        self.done += 1
        if self._goes_on():
            self._transport.write(self._requests[self.done % len(self._requests)])
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None)


async def main(given: argparse.Namespace) -> bool:
    is_good = True
    if given.what in ("all", "ends"):
        is_good = await measure_ends(given.ends) and is_good
    if given.what in ("all", "drain"):
        is_good = await measure_drain(given.ends) and is_good
    if given.what in ("all", "idle"):
        is_good = await measure_idle() and is_good
    if given.what in ("all", "heartbeats"):
        is_good = await measure_beats(given.processes) and is_good
    return is_good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("all", "ends", "drain", "idle", "heartbeats"), default="all")
    parser.add_argument("--ends", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=1, help="API processes that take heartbeats")
    sys.exit(0 if uvloop.run(main(parser.parse_args())) else 1)
