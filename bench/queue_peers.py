"""One worker process of one queue, measured: run by `bench.queue`, once per figure.

    python -m bench.queue_peers NAME DATABASE_URL MEASURE [ARGUMENTS]

Prints one line of JSON. Each queue is imported only when it is asked for: they are installed for the run alone.
"""

import asyncio
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import structlog
import uvloop

from server.db.database import Database
from server.db.notify import Notifier
from server.queue.claim import Claim
from server.queue.enqueue import enqueue, enqueue_many
from server.queue.handler import Done, Handler, Outcome
from server.queue.kinds import Priority, Work
from server.queue.worker import Worker


@dataclass(frozen=True, slots=True)
class Nothing(Work):
    """Work that does nothing."""

    kind = "BENCH_NOTHING"
    priority = Priority.HIGH

    number: int


class Queue:
    """What is asked of each of them. `table` is the one that is empty when all is done and committed."""

    table: str
    is_over = False  # for those that do not tell of each job

    def __init__(self, url: str) -> None:
        self.url = url
        self.started: asyncio.Queue[float] = asyncio.Queue()

    def end(self, _running: object) -> None:
        self.is_over = True

    async def install(self) -> None:
        """Make the tables."""

    async def fill(self, many: int) -> None:
        raise NotImplementedError

    async def run(self, concurrency: int) -> Callable[[], Awaitable[None]]:
        """Start the worker in the background; returns how to stop it."""
        raise NotImplementedError

    async def put(self) -> None:
        """Enqueue one job, committed."""
        raise NotImplementedError

    async def drain(self, concurrency: int, many: int) -> float:
        """Jobs per second, from the worker's start until the table is empty."""
        await self.fill(many)
        self.started = asyncio.Queue()
        watch = await asyncpg.connect(self.url)
        started = time.perf_counter()
        stop = await self.run(concurrency)
        # The table is read only at the end: while a snapshot is held, each read scans all of its dead rows.
        while self.started.qsize() < many and not self.is_over:  # noqa: ASYNC110 - counted up by the worker
            await asyncio.sleep(0.005)
        while await watch.fetchval(f"SELECT EXISTS (SELECT FROM {self.table})"):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)
        took = time.perf_counter() - started
        await stop()
        await watch.close()
        return many / took

    async def churn(self, concurrency: int, many: int, seconds: float) -> list[float]:
        """Drain after drain for that long."""
        ends = time.monotonic() + seconds
        rates = [await self.drain(concurrency, many)]
        while time.monotonic() < ends:
            rates.append(await self.drain(concurrency, many))
        return rates

    async def pickup(self, samples: int) -> dict[str, float]:
        """Milliseconds from just before the enqueue to the handler's first line, on an idle worker."""
        stop = await self.run(10)
        found: list[float] = []
        for _ in range(samples + 10):
            await asyncio.sleep(0.02)
            sent = time.perf_counter()
            await self.put()
            found.append((await self.started.get() - sent) * 1000)
        await stop()
        found = sorted(found[10:])
        return {"p50": statistics.median(found), "p99": found[int(len(found) * 0.99)]}

    async def enqueue(self, at_once: int, many: int) -> float:
        """Jobs per second, one commit each, by that many callers."""

        async def caller() -> None:
            for _ in range(many // at_once):
                await self.put()

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(at_once)))
        return many / (time.perf_counter() - started)

    async def batch(self, many: int) -> float:
        """Jobs per second in batches of a thousand, as its own API puts them in."""
        started = time.perf_counter()
        for _ in range(many // 1000):
            await self.fill(1000)
        return many / (time.perf_counter() - started)


class Pilotlight(Queue):
    """Ours: the product's own worker, with leases, fencing and metrics, as `pilotlight worker` runs it."""

    table = "job"

    async def install(self) -> None:
        # As a worker process does before it starts.
        import server.runtime  # noqa: F401, PLC0415
        from server.cli.main import tune_collector  # noqa: PLC0415

        tune_collector()
        self.database = Database(self.url, name="bench worker")
        self.notifier = Notifier(self.database)
        self.notifier.start()
        # Enqueues as another process would: only NOTIFY can wake the worker.
        self.elsewhere = Database(self.url, pool_size=16, name="bench caller")
        self.elsewhere_signals = Notifier(self.elsewhere)
        self.elsewhere_signals.start()

    async def fill(self, many: int) -> None:
        for first in range(0, many, 1000):
            async with self.elsewhere.write() as session:
                await enqueue_many(session, [Nothing(first + number) for number in range(min(1000, many - first))])

    async def run(self, concurrency: int) -> Callable[[], Awaitable[None]]:
        async def nothing(_work: Nothing, _claim: Claim) -> Outcome:
            self.started.put_nowait(time.perf_counter())
            return Done()

        worker = Worker(self.database, self.notifier, {Nothing.kind: Handler(nothing)}, concurrency=concurrency)
        worker.start()
        return worker.stop

    async def churn(self, concurrency: int, many: int, seconds: float) -> list[float]:
        return [rate for _, _, rate in await self.drains(concurrency, many, seconds)]

    async def drains(self, concurrency: int, many: int, seconds: float) -> list[tuple[float, float, float]]:
        """Begin and end by the machine's clock, and jobs per second, of each drain. One worker for the whole time.

        Each lot becomes visible with one commit, so that it has to be drained.
        """
        ends = time.monotonic() + seconds
        drains: list[tuple[float, float, float]] = []
        stop = await self.run(concurrency)
        while time.monotonic() < ends or not drains:
            self.started = asyncio.Queue()
            async with self.elsewhere.write() as session:
                for first in range(0, many, 1000):
                    await enqueue_many(session, [Nothing(first + number) for number in range(1000)])
                began, started = time.time(), time.perf_counter()
            while self.started.qsize() < many:  # noqa: ASYNC110 - counted up by the worker
                await asyncio.sleep(0.005)
            drains.append((began, time.time(), many / (time.perf_counter() - started)))
        await stop()
        return drains

    async def put(self) -> None:
        async with self.elsewhere.write() as session:
            await enqueue(session, Nothing(1))


class PgQueuer(Queue):
    """Its pool driver and uvloop are faster than its other drivers; `batch` and `cap` are tried out."""

    table = "pgqueuer"
    driver = "pool"
    batch_size = 0
    cap: int | None = None

    async def install(self) -> None:
        from pgqueuer.db import AsyncpgPoolDriver  # noqa: PLC0415
        from pgqueuer.queries import Queries  # noqa: PLC0415

        self.pool = await asyncpg.create_pool(self.url, min_size=2, max_size=20)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))
        if await self.pool.fetchval("SELECT to_regclass('pgqueuer')") is None:
            await self.queries.install()

    async def fill(self, many: int) -> None:
        for first in range(0, many, 1000):
            size = min(1000, many - first)
            await self.queries.enqueue(["nothing"] * size, [None] * size, [0] * size)

    async def run(self, concurrency: int) -> Callable[[], Awaitable[None]]:
        from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver  # noqa: PLC0415
        from pgqueuer.qm import QueueManager  # noqa: PLC0415
        from pgqueuer.queries import Queries  # noqa: PLC0415

        if self.driver == "pool":
            connection: Any = await asyncpg.create_pool(self.url, min_size=4, max_size=10)
            driver: Any = AsyncpgPoolDriver(connection)
        else:
            connection = await asyncpg.connect(self.url)
            driver = AsyncpgDriver(connection)
        manager = QueueManager(Queries(driver))

        @manager.entrypoint("nothing")
        async def nothing(_job: Any) -> None:
            self.started.put_nowait(time.perf_counter())

        running = asyncio.ensure_future(
            manager.run(batch_size=self.batch_size or concurrency, max_concurrent_tasks=self.cap)
        )
        await asyncio.sleep(0)

        async def stop() -> None:
            manager.shutdown.set()
            await running
            await connection.close()

        return stop

    async def put(self) -> None:
        await self.queries.enqueue("nothing", None, 0)


class Procrastinate(Queue):
    table = "procrastinate_jobs WHERE status IN ('todo', 'doing')"

    async def install(self) -> None:
        import procrastinate  # noqa: PLC0415

        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.url, max_size=20))
        await self.app.open_async()

        async def nothing() -> None:
            self.started.put_nowait(time.perf_counter())

        self.task = self.app.task(name="nothing")(nothing)
        connection = await asyncpg.connect(self.url)
        if await connection.fetchval("SELECT to_regclass('procrastinate_jobs')") is None:
            await self.app.schema_manager.apply_schema_async()
        await connection.close()

    async def fill(self, many: int) -> None:
        for first in range(0, many, 1000):
            await self.task.batch_defer_async(*({} for _ in range(min(1000, many - first))))

    async def run(self, concurrency: int) -> Callable[[], Awaitable[None]]:
        running = asyncio.ensure_future(
            self.app.run_worker_async(
                concurrency=concurrency,
                install_signal_handlers=False,
                delete_jobs="always",
                fetch_job_polling_interval=1,
            )
        )
        await asyncio.sleep(0.2 if concurrency == 10 else 0)

        async def stop() -> None:
            running.cancel()
            await asyncio.wait([running])

        return stop

    async def put(self) -> None:
        await self.task.defer_async()


class Bare(Queue):
    """The least there can be: one statement per job, as many connections as run at once; no lease, no history."""

    table = "bare_job"

    async def install(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=2, max_size=20)
        await self.pool.execute("CREATE TABLE IF NOT EXISTS bare_job (id bigserial PRIMARY KEY, args jsonb NOT NULL)")

    async def fill(self, many: int) -> None:
        await self.pool.execute("INSERT INTO bare_job (args) SELECT '{}' FROM generate_series(1, $1::int)", many)

    async def run(self, concurrency: int) -> Callable[[], Awaitable[None]]:
        connections = [await asyncpg.connect(self.url) for _ in range(min(concurrency, 50))]

        async def loop(connection: Any) -> None:
            while await connection.fetchval(
                "DELETE FROM bare_job WHERE id = (SELECT id FROM bare_job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
                " RETURNING id"
            ):
                pass

        running = asyncio.gather(*map(loop, connections))
        running.add_done_callback(self.end)

        async def stop() -> None:
            await running
            for connection in connections:
                await connection.close()

        return stop

    async def put(self) -> None:
        await self.pool.execute("INSERT INTO bare_job (args) VALUES ('{}')")


class InServer(Pilotlight):
    """The same rows through the same tables without a client: the most that the server could do."""

    LOOP = """
        DO $$
        DECLARE
            ids bigint[] := '{}';
        BEGIN
            LOOP
                WITH finished AS (
                    DELETE FROM job WHERE id = ANY(ids)
                    RETURNING id, kind, args, priority, project_id, instance_id, unique_key, run_at, attempts,
                              error_code, error_message, created_at, claimed_at
                )
                INSERT INTO job_history (id, kind, args, priority, project_id, instance_id, unique_key, run_at,
                                         attempts, error_code, error_message, created_at, claimed_at, status,
                                         finished_at)
                SELECT finished.*, 'SUCCEEDED', clock_timestamp() FROM finished;
                WITH taken AS MATERIALIZED (
                    SELECT ctid FROM job
                    WHERE kind = 'BENCH_NOTHING' AND status = 'WAITING' AND run_at <= now()
                    ORDER BY due_at, id LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED
                ), claimed AS (
                    UPDATE job SET status = 'RUNNING', claim = 1, worker_id = gen_random_uuid(), claimed_at = now()
                    WHERE ctid = ANY(ARRAY(SELECT ctid FROM taken))
                    RETURNING id
                )
                SELECT array_agg(id) FROM claimed INTO ids;
                COMMIT;
                EXIT WHEN ids IS NULL;
            END LOOP;
        END $$
    """

    async def run(self, concurrency: int) -> Callable[[], Awaitable[None]]:
        connection = await asyncpg.connect(self.url, server_settings={"enable_seqscan": "off"})
        running = asyncio.ensure_future(connection.execute(self.LOOP))
        running.add_done_callback(self.end)

        async def stop() -> None:
            await running
            await connection.close()

        return stop


QUEUES: dict[str, type[Queue]] = {
    "pilotlight": Pilotlight,
    "pgqueuer": PgQueuer,
    "procrastinate": Procrastinate,
    "bare": Bare,
    "in_server": InServer,
}


async def measure(name: str, url: str, what: str, *arguments: str) -> Any:
    queue = QUEUES[name](url)
    await queue.install()
    match what, arguments:
        case "drain", (concurrency, many, *options):
            for option in options:
                key, _, value = option.partition("=")
                setattr(queue, key, value if key == "driver" else int(value) or None)
            return await queue.drain(int(concurrency), int(many))
        case "churn", (concurrency, many, seconds):
            return await queue.churn(int(concurrency), int(many), float(seconds))
        case "drains", (concurrency, many, seconds) if isinstance(queue, Pilotlight):
            return await queue.drains(int(concurrency), int(many), float(seconds))
        case "pickup", (samples,):
            return await queue.pickup(int(samples))
        case "enqueue", (at_once, many):
            return await queue.enqueue(int(at_once), int(many))
        case "batch", (many,):
            return await queue.batch(int(many))
        case _:
            raise SystemExit(f"can't measure {what}")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.disable(logging.CRITICAL)
    print(
        json.dumps(uvloop.run(asyncio.wait_for(measure(*sys.argv[1:]), timedelta(minutes=10).total_seconds()))),
        flush=True,
    )
    os._exit(0)  # whatever a queue still has open is of no interest: the figure is out
