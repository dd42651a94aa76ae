"""From a commit to the subscriber, in one process with durable commits: idle, and with 16 writers at full speed.

python -m bench.live_latency                  an embedded PostgreSQL of its own
python -m bench.live_latency --url URL        a migrated database that may be written to
python -m bench.live_latency --rows 1000000   and what the readers' queries cost with so many events in the log
"""

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import structlog

from server.clock import new_id
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.db.notify import Notifier
from server.events.event import EventType
from server.events.outbox import append
from server.events.partitions import make_partitions
from server.events.replay import page_of_events
from server.events.sequencer import Sequencer
from server.events.tail import READ_SPAN, Tail

PROJECT = new_id()
SNAPSHOT = {"instance": {"id": str(new_id()), "status": "RUNNING", "labels": {"team": "vision"}, "note": "x" * 400}}


async def main(url: str | None, rows: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    async with AsyncExitStack() as stack:
        if url is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
            url = (await stack.enter_async_context(EmbeddedPostgres(home))).url
            await upgrade(url)
        database = Database(url, pool_size=18)
        stack.push_async_callback(database.close)
        await measure_latency(database)
        if rows:
            await measure_queries(database, rows)


async def measure_latency(database: Database) -> None:
    signals = Notifier(database)
    sequencer, tail = Sequencer(database, signals), Tail(database, signals)
    for part in (signals, sequencer, tail):
        part.start()
    async with tail.subscribe(project_id=PROJECT, after=None, backlog=100_000) as events:
        await one_commit(database)
        await anext(events)  # everything is connected and prepared
        for name, writers, each, pause in (("idle", 1, 400, 0.02), ("16 writers", 16, 250, 0.0)):
            committed: dict[UUID, float] = {}
            began = time.perf_counter()
            writing = asyncio.gather(*(write(database, each, pause, committed) for _ in range(writers)))
            received = {(await anext(events)).id: time.perf_counter() for _ in range(writers * each)}
            await writing
            seconds = max(committed.values()) - began
            print_latencies(name, [max(received[id] - at, 0) for id, at in committed.items()], len(committed) / seconds)
    for part in (tail, sequencer, signals):
        await part.stop()


async def write(database: Database, times: int, pause: float, committed: dict[UUID, float]) -> None:
    for _ in range(times):
        event_id = await one_commit(database)
        committed[event_id] = time.perf_counter()
        await asyncio.sleep(pause)


async def one_commit(database: Database) -> UUID:
    async with database.write() as session:
        return await append(
            session, type=EventType.INSTANCE_CHANGED, project_id=PROJECT, instance_id=PROJECT, data=SNAPSHOT
        )


def print_latencies(name: str, seconds: list[float], rate: float) -> None:
    cuts = statistics.quantiles(seconds, n=100)
    print(f"{name:12} p50 {cuts[49] * 1000:6.2f} ms   p99 {cuts[98] * 1000:6.2f} ms   {rate:7.0f} commits/s")


async def measure_queries(database: Database, rows: int) -> None:
    """The same questions about the newest events, with a thousand events in the log and with `rows`."""
    connection = await database.connect(
        command_timeout=3600, server_settings={"timezone": "UTC", "plan_cache_mode": "force_custom_plan"}
    )
    head: int = await connection.fetchval("SELECT head FROM event_log")
    for size in (head + 1000, rows):
        await fill(connection, size)
        head = await connection.fetchval("SELECT head FROM event_log")
        span, page, instance = [], [], []
        for _ in range(200):
            began = time.perf_counter()
            assert len(await connection.fetch(READ_SPAN, head - 20, head + 480)) == 20
            span.append(time.perf_counter() - began)
        for ids, times in ((None, page), ([PROJECT], instance)):
            for _ in range(200):
                async with database.read() as session:
                    began = time.perf_counter()
                    await page_of_events(session, project_id=PROJECT, after=head - 900, instance_ids=ids, limit=50)
                    times.append(time.perf_counter() - began)
        print(
            f"{head:>12,} events   tail {statistics.median(span) * 1000:.2f} ms"
            f"   page {statistics.median(page) * 1000:.2f} ms"
            f"   page of an instance {statistics.median(instance) * 1000:.2f} ms"
        )
    await connection.close()


async def fill(connection, size: int) -> None:
    """Straight into the log, a hundred thousand at a time, as if all had gone through the outbox."""
    head: int = await connection.fetchval("SELECT head FROM event_log")
    while head < size:
        more = min(100_000, size - head)
        await make_partitions(connection, head=head, size=200_000)
        async with connection.transaction():
            await connection.execute(
                """
                INSERT INTO event
                SELECT $1 + n, gen_random_uuid(), 'instance.changed',
                       CASE WHEN n % 3 = 0 THEN $3 ELSE gen_random_uuid() END,
                       CASE WHEN n % 30 = 0 THEN $3 ELSE gen_random_uuid() END,
                       NULL, NULL, jsonb_build_object('note', repeat('x', 200)), now()
                FROM generate_series(1, $2::bigint) AS n
                """,
                head,
                more,
                PROJECT,
            )
            await connection.execute("UPDATE event_log SET head = $1", head + more)
        head += more
    await connection.execute("ANALYZE event")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--rows", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(main(given.url, given.rows))
