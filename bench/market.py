"""What 10,000 operations that wait for capacity cost, and how long after stock has come a create is sent.

    python -m bench.market [--waiters 10000] [--seconds 180] [--rounds 30]

One `pilotlight worker` with its default settings; the simulator runs here. Promised: while all wait, below 1 % of a
core for the worker, no slot, no event and at most MARKET_CALLS calls in any minute; p99 of the time from stock to the
create call at most MARKET_HOT + 2 s. Ends with 1 if one is not kept. CPU time does not depend on what else the machine
does.
"""

import argparse
import asyncio
import bisect
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import asyncpg
import psutil

from server.clock import new_id
from server.config import Settings
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator

PILOTLIGHT = str(Path(sys.executable).with_name("pilotlight"))
PRODUCT, CLUSTER, REGION, NAME = "26", "as-sgp-2", "AS-SGP-02", "RTX 4090 24GB"
CPU_MOST, SETTLE = 1.0, 30.0
MINUTE, LOOK = 60.0, 0.2
# A call is counted before it is sent, and seen here up to a look after it: two a minute apart may look so much closer.
LATE = 0.5
SEED = 4

INSTANCES = """
    INSERT INTO instance (id, project_id, name, status, status_reason, product_name, gpu_count, rootfs_size_gb, billing,
                          image)
    SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1, 'w' || n, 'CREATING',
           'WAITING_FOR_CAPACITY', $3, 1, 60, 'SPOT', 'nginx'
    FROM generate_series(1, $2) AS n
"""
OPERATIONS = """
    INSERT INTO operation (id, project_id, instance_id, kind, status, phase, wanted)
    SELECT id, project_id, id, 'CREATE', 'RUNNING', 'PLACING',
           jsonb_build_object('wait', jsonb_build_object('until', now() + interval '1 day', 'priority', 50))
    FROM instance
"""
WAITS = """
    INSERT INTO capacity_wait (operation_id, project_id, instance_id, kind, args, product_name, gpu_count,
                               rootfs_size_gb, regions, modes, priority, since, until)
    SELECT id, project_id, id, 'CREATE_INSTANCE', jsonb_build_object('instance_id', id, 'operation_id', id), $1, 1, 60,
           $2, ARRAY['spot', 'onDemand'], 50, now(), now() + interval '1 day'
    FROM instance
"""
JOBS = """
    INSERT INTO job (kind, args, priority, project_id, instance_id, unique_key, run_at, due_at, pause)
    SELECT 'EXPIRE_WAIT', jsonb_build_object('operation_id', id), 0, project_id, id, 'wait ' || id,
           now() + interval '1 day', now() + interval '1 day', NULL
    FROM instance
"""


async def main(waiters: int, seconds: float, rounds: int) -> bool:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        url = (await stack.enter_async_context(EmbeddedPostgres(home))).url
        await upgrade(url)
        simulator = await stack.enter_async_context(Simulator(SimulatorOptions(max_listeners=0)))
        connection = await asyncpg.connect(url)
        stack.push_async_callback(connection.close)
        clusters = simulator.world.catalog.clusters
        for cluster in clusters:
            for product, at in list(simulator.world.catalog.total):
                if at == cluster and simulator.world.catalog.products[product].name == NAME:
                    simulator.world.set_stock(product, at, 0)
        await _fill(connection, waiters)
        worker = _worker(stack, url, simulator.url)
        await asyncio.sleep(SETTLE)
        is_cheap = await _measure_idle(connection, simulator, worker, waiters, seconds)
        # From here on in one region, whose segments are polled as often as promised.
        await connection.execute("UPDATE capacity_wait SET regions = $1, modes = ARRAY['spot']", [REGION])
        return await _measure_latency(simulator, rounds) and is_cheap


async def _fill(connection: asyncpg.Connection, waiters: int) -> None:
    project = new_id()
    await connection.execute("INSERT INTO project (id, name) VALUES ($1, 'bench')", project)
    await connection.execute(INSTANCES, project, waiters, NAME)
    await connection.execute(OPERATIONS)
    regions = ["AS-SGP-02", "US-CA-06", "CN-HK-01", "AS-IN-01", "EU-GB-01"]
    await connection.execute(WAITS, NAME, regions)
    await connection.execute(JOBS)
    await connection.execute("VACUUM ANALYZE instance, operation, capacity_wait, job")


def _worker(stack: AsyncExitStack, url: str, provider: str) -> psutil.Process:
    env = {
        "DATABASE_URL": url,
        "NOVITA_API_KEY": "sk_bench",
        "NOVITA_API_BASE_URL": provider,
        "RECONCILE_INTERVAL": "1h",
        "LOG_LEVEL": "warning",
    }
    process = subprocess.Popen([PILOTLIGHT, "worker"], env=os.environ | env, stdout=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return psutil.Process(process.pid)


async def _measure_idle(
    connection: asyncpg.Connection, simulator: Simulator, worker: psutil.Process, waiters: int, seconds: float
) -> bool:
    running = "SELECT count(*) FROM job WHERE status = 'RUNNING' AND instance_id IS NOT NULL"
    written = "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM event)"
    calls, cpu, events = _polls(simulator), _cpu(worker), await connection.fetchval(written)
    clock = asyncio.get_running_loop().time
    began, slots = clock(), 0
    made: list[float] = []  # when each call was seen
    while clock() < began + seconds:
        slots = max(slots, await connection.fetchval(running))
        made += [clock()] * (_polls(simulator) - calls - len(made))
        await asyncio.sleep(LOOK)
    share = 100 * (_cpu(worker) - cpu) / (clock() - began)
    most = most_within(made, MINUTE - LATE)
    events = await connection.fetchval(written) - events
    limit: int = Settings.model_fields["market_calls"].default
    print(
        f"{waiters:,} wait: worker {share:.2f} % of a core, {slots} slots, {events} events, "
        f"at most {most} calls in any minute of {limit}, {len(made)} in {seconds:g} s"
    )
    is_kept = share < CPU_MOST and slots == 0 and events == 0 and most <= limit
    print(f"{'PASS' if is_kept else 'FAIL'}: below {CPU_MOST:g} %, no slot, no event, at most {limit} calls a minute")
    return is_kept


def most_within(times: Sequence[float], seconds: float) -> int:
    """The largest number of these times, in order, that lie within so many seconds."""
    return max((bisect.bisect_left(times, begin + seconds) - n for n, begin in enumerate(times)), default=0)


async def _measure_latency(simulator: Simulator, rounds: int) -> bool:
    rng, clock = random.Random(SEED), asyncio.get_running_loop().time
    every: timedelta = Settings.model_fields["market_hot"].default
    hot = every.total_seconds()
    times: list[float] = []
    for _ in range(rounds):
        await asyncio.sleep(rng.uniform(0, hot))
        made, began = _creates(simulator), clock()
        simulator.world.set_stock(PRODUCT, CLUSTER, 1)
        while _creates(simulator) == made:
            await asyncio.sleep(0.01)
            if clock() > began + 10 * hot:
                raise SystemExit("no create was sent")
        times.append(clock() - began)
    times.sort()
    at = [times[min(len(times) - 1, int(len(times) * share))] for share in (0.5, 0.99)]
    print(f"stock to create call, {rounds} times: p50 {at[0]:.2f} s, p99 {at[1]:.2f} s")
    is_kept = at[1] <= hot + 2
    print(f"{'PASS' if is_kept else 'FAIL'}: p99 at most {hot + 2:g} s")
    return is_kept


def _polls(simulator: Simulator) -> int:
    calls = simulator.world.calls
    return calls["GET /products"] + calls["GET /clusters"] + calls["GET /cpu/products"]


def _creates(simulator: Simulator) -> int:
    return simulator.world.calls["POST /gpu/instance/create"]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--waiters", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(main(options.waiters, options.seconds, options.rounds)) else 1)
