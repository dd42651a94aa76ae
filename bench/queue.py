"""The job table beside other queues, on one durable server in one run.

    python -m bench.queue [--rounds 3] [--jobs 20000] [--finished 1000000] [--snapshot-seconds 60]

Prints drain, enqueue and pickup of every queue, then the ratios that we promise, each with pass or fail; ends with 1 if
one fails. Rounds alternate between the queues, so that whatever else the machine does hits all of them, and the median
counts. The others are installed into a temporary folder for the run.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg

from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade

PYTHON_PEERS = ["pgqueuer[asyncpg]", "procrastinate", "psycopg[binary,pool]", "uvloop"]
# PgQueuer as it is fastest: its settings are tried out before the rounds.
PGQUEUER: dict[int, list[list[str]]] = {
    10: [
        ["driver=pool", "batch_size=10"],
        ["driver=connection", "batch_size=10"],
        ["driver=pool", "batch_size=10", "cap=20"],
    ],
    100: [
        ["driver=pool", "batch_size=100"],
        ["driver=pool", "batch_size=100", "cap=200"],
        ["driver=pool", "batch_size=500"],
        ["driver=connection", "batch_size=100"],
    ],
}
FINISHED = """
    INSERT INTO job_history (id, kind, args, priority, status, run_at, attempts, created_at, claimed_at, finished_at)
    SELECT -n, 'BENCH_NOTHING', '{"number": 1}', 0, 'SUCCEEDED', now(), 0, now(), now(), now()
    FROM generate_series(1, $1::int) AS n
"""
GRAPHILE = """
const { run } = require("graphile-worker");
const { Pool } = require("pg");
(async () => {
  const [url, concurrency, many] = [process.argv[2], +process.argv[3], +process.argv[4]];
  const pool = new Pool({ connectionString: url, max: 20 });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const { runMigrations } = require("graphile-worker");
  await runMigrations({ pgPool: pool });
  await pool.query("SELECT graphile_worker.add_job('nothing', '{}') FROM generate_series(1, $1::int)", [many]);
  const quiet = { error() {}, warn() {}, info() {}, debug() {}, scope() { return quiet; } };
  const started = process.hrtime.bigint();
  const runner = await run({
    pgPool: pool, taskList: { nothing: async () => {} }, noHandleSignals: true, logger: quiet,
    preset: { worker: { concurrentJobs: concurrency, localQueue: { size: 500 }, completeJobBatchDelay: 0 } },
  });
  for (;;) {
    const left = await pool.query("SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS left");
    if (!left.rows[0].left) break;
    await new Promise((done) => setTimeout(done, 10));
  }
  console.log(many / (Number(process.hrtime.bigint() - started) / 1e9));
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
"""


class Bench:
    """One server, the peers, and the figures so far."""

    def __init__(self, url: str, folder: Path, options: argparse.Namespace) -> None:
        self.url = url
        self.folder = folder
        self.options = options
        self.environment = {**os.environ, "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{folder / 'python'}"}
        self.has_graphile = False

    def install_peers(self) -> None:
        uv = Path(sys.executable).with_name("uv")
        pip = [str(uv), "pip", "install", "-q", "--python", sys.executable] if uv.exists() else [
            sys.executable, "-m", "pip", "install", "-q"
        ]  # fmt: skip
        subprocess.run([*pip, "--target", str(self.folder / "python"), *PYTHON_PEERS], check=True)
        if shutil.which("npm") and shutil.which("node"):
            node = self.folder / "node"
            node.mkdir()
            done = subprocess.run(["npm", "install", "--silent", "graphile-worker"], cwd=node, check=False)
            (node / "drain.js").write_text(GRAPHILE)
            self.has_graphile = done.returncode == 0

    async def measure(self, *arguments: object, url: str | None = None) -> Any:
        """One figure, from a process of its own."""
        name, *rest = map(str, arguments)
        return json.loads(await self._run(sys.executable, "-m", "bench.queue_peers", name, url or self.url, *rest))

    async def graphile(self, concurrency: int) -> float:
        script = str(self.folder / "node" / "drain.js")
        return float(await self._run("node", script, self.url, str(concurrency), str(self.options.jobs // 2)))

    async def _run(self, *command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command, env=self.environment, stdout=subprocess.PIPE, cwd=Path.cwd()
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise SystemExit(f"{' '.join(command[:5])} failed")
        return output.decode().strip().splitlines()[-1]

    async def execute(self, statement: str, *arguments: object) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(statement, *arguments, timeout=300)
        await connection.close()


async def main(options: argparse.Namespace) -> int:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-queue-")))
        running = await stack.enter_async_context(EmbeddedPostgres(folder / "home", durable=True))
        await upgrade(running.url)
        bench = Bench(running.url, folder, options)
        print("installing the others ...", flush=True)
        bench.install_peers()
        promises = await drains(bench)
        promises += await hard_times(bench, await full_database(bench))
        await enqueues(bench)
        promises += await pickups(bench)
    print("\npromises")
    for name, ratio, wanted in promises:
        print(f"  {'pass' if ratio >= wanted else 'FAIL'}  {name}: {ratio:.2f}, at least {wanted}")
    return 0 if all(ratio >= wanted for _, ratio, wanted in promises) else 1


Promise = tuple[str, float, float]  # what, the ratio, what it must reach


async def drains(bench: Bench) -> list[Promise]:
    jobs = bench.options.jobs
    best = {at_once: await best_pgqueuer(bench, at_once) for at_once in (10, 100)}
    found: dict[tuple[str, int], list[float]] = {}

    def note(name: str, at_once: int, rate: float) -> None:
        found.setdefault((name, at_once), []).append(rate)

    for _ in range(bench.options.rounds):
        for at_once in (10, 100):
            note("pilotlight", at_once, await bench.measure("pilotlight", "drain", at_once, jobs))
            note("pgqueuer", at_once, await bench.measure("pgqueuer", "drain", at_once, jobs // 2, *best[at_once]))
            if bench.has_graphile:
                note("graphile-worker", at_once, await bench.graphile(at_once))
            note("bare asyncpg loop", at_once, await bench.measure("bare", "drain", at_once, jobs // 4))
        note("in the server", 100, await bench.measure("in_server", "drain", 1, jobs))
    for at_once in (10, 100):
        note("procrastinate", at_once, await bench.measure("procrastinate", "drain", at_once, 1000))
    rates = {key: statistics.median(values) for key, values in found.items()}
    print(f"\ndrain of jobs that do nothing, one worker process, jobs per second, median of {bench.options.rounds}")
    for name in ("procrastinate", "pgqueuer", "graphile-worker", "bare asyncpg loop", "pilotlight", "in the server"):
        shown = [f"{rates[name, at_once]:9,.0f}" if (name, at_once) in rates else " " * 9 for at_once in (10, 100)]
        print(f"  {name:18} 10 at once {shown[0]}   100 at once {shown[1]}", flush=True)
    print(f"  pgqueuer's settings: {best}")
    ours = rates["pilotlight", 100]
    promises: list[Promise] = [
        ("drain / PgQueuer's, 100 at once", ours / rates["pgqueuer", 100], 4.0),
        ("drain / PgQueuer's, 10 at once", rates["pilotlight", 10] / rates["pgqueuer", 10], 4.0),
        ("drain / the same inside the server", ours / rates["in the server", 100], 0.3),
    ]
    if bench.has_graphile:
        for at_once in (10, 100):
            ratio = rates["pilotlight", at_once] / rates["graphile-worker", at_once]
            promises.append((f"drain / graphile-worker's, {at_once} at once", ratio, 1.0))
    return promises


async def best_pgqueuer(bench: Bench, at_once: int) -> Sequence[str]:
    rates = [
        (await bench.measure("pgqueuer", "drain", at_once, 4000, *settings), settings) for settings in PGQUEUER[at_once]
    ]
    return max(rates)[1]


async def full_database(bench: Bench) -> str:
    """A second database on the same server, with the finished jobs of many days."""
    await bench.execute("CREATE DATABASE full_of_jobs")
    url = f"{bench.url.rpartition('/')[0]}/full_of_jobs"
    await upgrade(url)
    connection = await asyncpg.connect(url)
    await connection.execute(FINISHED, bench.options.finished, timeout=300)
    await connection.execute("VACUUM ANALYZE job_history", timeout=300)
    await connection.close()
    return url


async def hard_times(bench: Bench, full_url: str) -> list[Promise]:
    """Ours again: after ANALYZE of the empty table, beside many finished jobs, and while a snapshot is held.

    Each is compared with a drain of the same minute: on a busy machine, an older figure says little.
    """
    jobs, seconds = bench.options.jobs, bench.options.snapshot_seconds
    analyzed: list[float] = []
    finished: list[float] = []
    for _ in range(bench.options.rounds):
        plain = await bench.measure("pilotlight", "drain", 100, jobs)
        finished.append(await bench.measure("pilotlight", "drain", 100, jobs, url=full_url) / plain)
        await bench.execute("VACUUM ANALYZE job")
        analyzed.append(await bench.measure("pilotlight", "drain", 100, jobs) / plain)
    print("\nin hard times, as a part of the drain beside it")
    print(f"  after ANALYZE of the empty table   {statistics.median(analyzed):5.2f}")
    print(f"  beside {bench.options.finished:,} finished jobs    {statistics.median(finished):5.2f}", flush=True)
    held: dict[str, float] = {}
    for name, lot in (("pilotlight", jobs), ("pgqueuer", jobs // 4)):
        free = await bench.measure(name, "churn", 100, lot, seconds / 6)
        holder = await asyncpg.connect(bench.url)
        snapshot = holder.transaction(isolation="repeatable_read", readonly=True)
        await snapshot.start()
        await holder.fetchval("SELECT count(*) FROM job")
        rates = await bench.measure(name, "churn", 100, lot, seconds)
        await snapshot.rollback()
        await holder.close()
        held[name] = statistics.median(rates[-5:]) / statistics.median(free)
        print(f"  under a snapshot held for {seconds} s     {held[name]:5.2f}  {name}", flush=True)
    return [
        ("drain after ANALYZE of the empty table / drain", statistics.median(analyzed), 0.5),
        (f"drain beside {bench.options.finished:,} finished jobs / drain", statistics.median(finished), 0.95),
        (f"drain under a snapshot held for {seconds} s / drain", held["pilotlight"], 0.75),
    ]


async def enqueues(bench: Bench) -> None:
    print("\nenqueue, jobs per second: 1 caller, 16 callers, in batches of 1,000")
    for name in ("procrastinate", "pgqueuer", "bare", "pilotlight"):
        one = await bench.measure(name, "enqueue", 1, 1000)
        sixteen = await bench.measure(name, "enqueue", 16, 4000)
        batch = await bench.measure(name, "batch", 10000)
        print(f"  {name:18} {one:9,.0f} {sixteen:9,.0f} {batch:9,.0f}", flush=True)
    await bench.execute("DELETE FROM job; DELETE FROM pgqueuer; DELETE FROM procrastinate_jobs; DELETE FROM bare_job")


async def pickups(bench: Bench) -> list[Promise]:
    print("\nenqueue to handler on an idle worker, woken from another process, ms")
    found: dict[str, list[dict[str, float]]] = {"procrastinate": [], "pgqueuer": [], "pilotlight": []}
    for _ in range(bench.options.rounds):
        for name, values in found.items():
            values.append(await bench.measure(name, "pickup", 100 if name == "procrastinate" else 200))
    p50 = {name: statistics.median(value["p50"] for value in values) for name, values in found.items()}
    for name, values in found.items():
        print(f"  {name:18} p50 {p50[name]:7.2f}   p99 {statistics.median(value['p99'] for value in values):7.2f}")
    return [("PgQueuer's pickup p50 / ours", p50["pgqueuer"] / p50["pilotlight"], 1.0)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--snapshot-seconds", type=int, default=60)
    sys.exit(asyncio.run(main(parser.parse_args())))
