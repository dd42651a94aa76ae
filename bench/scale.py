"""Whether size matters: the same queries on a database with 1,000 rows per table and on one with millions.

    python -m bench.scale [--instances 1000000] [--events 10000000] [--rows 1000000] [--rounds 40]
    python -m bench.scale --only ledger,tape,waits,audit
    python -m bench.scale --keep FOLDER     keep what was filled, and ask it again the next time
    python -m bench.scale --memory          only the memory of an idle `pilotlight up`

Both databases are on one server, filled by SQL, and queried alternately, so that other load hits both alike.
The lower quartile of each counts: what else the machine does only ever adds. What is promised: a question costs at most
1.5 times as much in the large one, unless it reads what has grown (those have no limit, and say why). Ends with 1 if
one costs more. Events have small bodies here; what is measured is finding them.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psutil

from bench import scale_tables as tables
from bench.scale_tables import OTHER, PROJECT, TEAM, Question
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.enums import InstanceStatus
from server.events.partitions import PARTITION_SIZE, make_partitions
from server.events.replay import page_of_events
from server.events.tail import READ_SPAN, SESSION
from server.instances.queries import fast_page
from server.instances.queries.instances import InstanceFilter, InstanceOrder
from server.queue.exchange import PLANNER, ClaimRequest, exchange
from server.queue.kinds import CleanUp
from server.spend.report import SpendGroup
from tests.support.pages import page_of_instances
from tests.support.processes import up

SMALL = 1000
MOST = 1.5
LARGEST_IDLE_MB = 250
PAGE = 50
PARTS = ("instances", "jobs", "log", "ledger", "tape", "waits", "audit")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

# One in three is deleted, one in ten failed; a handful has a rare label and a rare name, however many there are.
INSTANCES = """
    INSERT INTO instance (id, project_id, name, status, failure_code, deleted_at, ready_at, product_name, gpu_count,
                          rootfs_size_gb, billing, image, region, price_per_hour_e5, labels, created_at, status_since)
    SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
           CASE WHEN n % 20 = 19 THEN $3::uuid ELSE $2::uuid END,
           CASE WHEN n % ($1 / 5) = 7 THEN 'needle-' ELSE 'worker-' END || n,
           status, CASE WHEN status = 'FAILED' THEN 'X' END, CASE WHEN status = 'DELETED' THEN now() END, now(),
           'RTX 4090 24GB', 1, 60, 'SPOT', 'nginx', (ARRAY['AS-SGP-02', 'CN-HK-01', 'AS-IN-01'])[1 + n % 3],
           20000 + n % 9973,
           CASE WHEN n % ($1 / 5) = 11 THEN '{"team": "rare"}'::jsonb ELSE jsonb_build_object('team', 't' || n % 7) END,
           $4::timestamptz + n * interval '1 s', $4::timestamptz + n * interval '1 s'
    FROM generate_series(1, $1::int) AS n,
         LATERAL (SELECT CASE WHEN n % 3 = 0 THEN 'DELETED' WHEN n % 10 = 1 THEN 'FAILED' WHEN n % 5 = 0 THEN 'EXITED'
                         ELSE 'READY' END) AS s (status)
"""
EVENTS = """
    INSERT INTO event (position, id, type, project_id, instance_id, data, occurred_at)
    SELECT n, gen_random_uuid(), 'instance.ready', CASE WHEN n % 20 = 19 THEN $4::uuid ELSE $3::uuid END,
           ('00000000-0000-7000-8000-' || lpad(to_hex(1 + n % $5), 12, '0'))::uuid,
           '{"from": "HEALTH_CHECKING", "to": "READY", "version": 5}', $6::timestamptz + n * interval '1 ms'
    FROM generate_series($1::bigint, $2::bigint) AS n
"""
FINISHED = """
    INSERT INTO job_history (id, kind, args, priority, status, run_at, attempts, created_at, claimed_at, finished_at)
    SELECT -n, 'CLEAN_UP', '{}', 0, 'SUCCEEDED', now(), 0, now(), now(), now() - n * interval '10 ms'
    FROM generate_series(1, $1::int) AS n
"""
WAITING = """
    INSERT INTO job (kind, args, priority, run_at, due_at)
    SELECT $1, '{}', 1, now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, $2::int)
"""


@dataclass
class Side:
    """One of the two databases, with connections of the kinds that ask."""

    name: str
    url: str
    instances: int
    events: int
    rows: int  # of each other table

    async def fill(self, parts: Sequence[str], say: Callable[[str], None]) -> None:
        connection = await asyncpg.connect(self.url, timeout=60)
        try:
            # What is filled in fits together: checking every foreign key takes longer than the rest.
            await connection.execute("SET synchronous_commit = off; SET session_replication_role = replica")
            for project, name in ((PROJECT, "ours"), (OTHER, "theirs")):
                await connection.execute("INSERT INTO project (id, name) VALUES ($1, $2)", project, name)
            say(f"{self.name}: {self.instances:,} instances")
            await connection.execute(INSTANCES, self.instances, PROJECT, OTHER, BEGAN)
            await tables.fill_team(connection)
            for part in parts:
                began = time.monotonic()
                if (fill := FILLS.get(part)) is not None:
                    await fill(connection, self)
                    say(f"{self.name}: {part} in {time.monotonic() - began:.0f} s")
            await connection.execute("VACUUM ANALYZE")
            await connection.execute("CHECKPOINT") if await _may_checkpoint(connection) else None
            for part in parts:
                if (table := tables.SIZED.get(part)) is not None and self.rows > SMALL:
                    size = await connection.fetchval("SELECT pg_total_relation_size($1::regclass)", table)
                    rows = await connection.fetchval(f"SELECT count(*) FROM {table}")
                    say(f"{self.name}: {table} has {rows:,} rows of {size / rows:,.0f} bytes with their indexes")
        finally:
            await connection.close()

    async def open(self) -> None:
        self.database = Database(self.url, pool_size=2)
        self.tail = await self.database.connect(server_settings=SESSION)
        self.worker_connection = await self.database.connect(server_settings=PLANNER)
        self.worker_id = uuid4()
        await self.worker_connection.execute(
            "INSERT INTO job_worker (id, name, lease_until) VALUES ($1, 'bench', now() + interval '1 d')",
            self.worker_id,
        )
        self.finished: list[tuple[int, int]] = []
        self.claim = 0
        await self.worker_connection.execute(WAITING, CleanUp.kind, 20_000)

    async def close(self) -> None:
        await self.tail.close()
        await self.worker_connection.close()
        await self.database.close()


async def fill_jobs(connection: asyncpg.Connection, side: Side) -> None:
    await connection.execute(FINISHED, side.rows)


async def fill_log(connection: asyncpg.Connection, side: Side) -> None:
    for first in range(1, side.events + 1, PARTITION_SIZE):
        await make_partitions(connection, head=first - 1, size=PARTITION_SIZE)
        last = min(first + PARTITION_SIZE - 1, side.events)
        await connection.execute(EVENTS, first, last, PROJECT, OTHER, side.instances, BEGAN)
    await connection.execute(
        "INSERT INTO event_log (epoch, home, head) VALUES (1, 'bench', $1)"
        " ON CONFLICT (is_the_only_row) DO UPDATE SET head = $1",
        side.events,
    )


FILLS: dict[str, Callable[[asyncpg.Connection, Side], Awaitable[None]]] = {
    "jobs": fill_jobs,
    "log": fill_log,
    "ledger": tables.fill_ledger,
    "tape": tables.fill_tape,
    "waits": tables.fill_waits,
    "audit": tables.fill_audit,
}


def page(wanted: InstanceFilter | None = None, **how: Any) -> Question:
    async def ask(side: Side) -> Any:
        async with side.database.read() as session:
            return await page_of_instances(
                session, project_id=PROJECT, wanted=wanted or InstanceFilter(), first=PAGE, **how
            )

    return ask


async def page_in_the_middle(side: Side) -> Any:
    middle = (BEGAN + timedelta(seconds=side.instances // 2), UUID(int=0))
    return await page(after=middle)(side)


async def page_as_served(side: Side) -> Any:
    """Read past the ORM; rows whose version is known are not read again."""
    return await fast_page.page(
        side.database, project_id=PROJECT, first=PAGE, after=None, order=InstanceOrder.CREATED_AT, descending=True
    )


async def claim(side: Side) -> Any:
    """One exchange of a worker: finish the ten jobs of the last one, claim ten more."""
    side.claim += 1
    result = await exchange(
        side.worker_connection,
        worker_id=side.worker_id,
        claim=side.claim,
        finished=side.finished,
        rescheduled=[],
        request=ClaimRequest(10, {CleanUp.kind: 10}, {}),
    )
    side.finished = [(job.id, job.claim) for job in result.claimed]
    return result.claimed


async def tail_of_the_log(side: Side) -> Any:
    return await side.tail.fetch(READ_SPAN, side.events - 100, side.events)


def history(*, of_one_instance: bool) -> Question:
    async def ask(side: Side) -> Any:
        async with side.database.read() as session:
            return await page_of_events(
                session,
                project_id=PROJECT,
                after=None if of_one_instance else side.events // 2,
                instance_ids=[UUID("00000000-0000-7000-8000-000000000004")] if of_one_instance else None,
                limit=100 if not of_one_instance else 1,
            )

    return ask


QUESTIONS: dict[str, dict[str, Question]] = {
    "instances": {
        "instances, newest first": page(),
        "instances, newest first, as served": page_as_served,
        "instances, in the middle": page_in_the_middle,
        "instances by name": page(order=InstanceOrder.NAME, descending=False),
        "instances by status": page(order=InstanceOrder.STATUS, descending=False),
        "instances by age of status": page(order=InstanceOrder.STATUS_SINCE),
        "instances by price": page(order=InstanceOrder.PRICE),
        "instances that failed": page(InstanceFilter(statuses=(InstanceStatus.FAILED,))),
        "instances of a region": page(InstanceFilter(regions=("CN-HK-01",))),
        "instances with a rare label": page(InstanceFilter(labels=(("team", "rare"),))),
        "instances with a common label": page(InstanceFilter(labels=(("team", "t3"),))),
        "instances whose rare name starts with": page(InstanceFilter(name_starts_with="needle")),
        "instances whose rare name contains": page(InstanceFilter(name_contains="eedl")),
        "instances whose common name contains": page(InstanceFilter(name_contains="orke")),
    },
    "jobs": {"claim of ten jobs": claim},
    "log": {
        "tail of the log, 100 events": tail_of_the_log,
        "history of a project, 100 events": history(of_one_instance=False),
        "history of an instance, the oldest event": history(of_one_instance=True),
    },
    "ledger": {
        "spend of a project of constant size": tables.spend(TEAM, SpendGroup.DAY, days=30),
        "spend of 50 instances": tables.spend_of_instances,
        "this month of a project": tables.month_of_a_project,
        "use of a budget": tables.use_of_a_budget,
        "sums of 100 closed entries": tables.sum_closed_entries,
        "spend of all by product": tables.spend(PROJECT, SpendGroup.PRODUCT, days=30),
    },
    "tape": {
        "offers of a product": tables.offers_of_a_product,
        "write of a poll of 20 offers": tables.write_of_a_poll,
        "history of an offer, 15 minutes": tables.history_of_an_offer(timedelta(minutes=15)),
        "history of an offer, a week": tables.history_of_an_offer(timedelta(days=7)),
        "availability of 20 offers": tables.availability_of_offers,
        "when an offer comes again": tables.next_offer,
    },
    "waits": {"place of one that waits": tables.place_of_a_wait, "whose turn it is": tables.whose_turn},
    "audit": {
        "audit log of a project": tables.audit(PROJECT),
        "audit log of a project of constant size": tables.audit(TEAM),
        "audit log of a rare object": tables.audit(PROJECT, target=tables.RARE),
        "write of 32 records": tables.write_of_records,
    },
}
# Why each costs more the more there is.
WITHOUT_LIMIT = {
    "history of an instance, the oldest event": "opens every partition of the log",
    "spend of all by product": "sums every instance and day",
    "history of an offer, a week": "reads the changes of a week",
    "availability of 20 offers": "reads every change that is kept of these offers",
    "when an offer comes again": "reads every change that is kept of the offers that fit",
    "place of one that waits": "counts all that wait for the product",
    "whose turn it is": "orders all that wait for the product",
}


async def compare(
    small: Side, large: Side, questions: dict[str, Question], rounds: int
) -> dict[str, tuple[float, float]]:
    """The lower quartile of each question, in milliseconds, in the small and in the large one."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 5):
        for name, ask in questions.items():
            for side in (small, large) if number % 2 else (large, small):
                began = time.perf_counter()
                found = await ask(side)
                took = time.perf_counter() - began
                assert found, f"nothing was found for {name}"
                if number >= 5:  # the first ones only warm up
                    times.setdefault((name, side.name), []).append(took * 1000)
    return {
        name: (_lower_quartile(times[name, small.name]), _lower_quartile(times[name, large.name])) for name in questions
    }


def _lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


async def scale(given: argparse.Namespace) -> bool:
    parts = [part for part in PARTS if part in given.only]
    questions = {name: ask for part in parts for name, ask in QUESTIONS[part].items()}
    async with AsyncExitStack() as stack:
        home = given.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-scale-", dir=given.folder))
        )
        filled = home / "filled"
        if filled.exists() and filled.read_text() != _size(given):
            raise SystemExit(f"{home} was filled with {filled.read_text()}")
        # Nothing is to be kept, and filling takes most of the time.
        server = await stack.enter_async_context(EmbeddedPostgres(home, durable=False))
        sides = [
            Side("small", server.url, SMALL, SMALL, SMALL),
            Side("large", await _another(server.url), given.instances, given.events, given.rows),
        ]
        for side in sides:
            await upgrade(side.url)
            began = time.monotonic()
            if not filled.exists():
                await side.fill(parts, _say)
                _say(f"{side.name}: filled in {time.monotonic() - began:.0f} s")
            await side.open()
            stack.push_async_callback(side.close)
        filled.write_text(_size(given))
        figures = await compare(*sides, questions, given.rounds)
    _say(f"\n{'milliseconds, lower quartile':42} {'1,000':>9} {'millions':>9} {'ratio':>7}")
    is_good, worst = True, 0.0
    for name, (small, large) in figures.items():
        ratio = large / small
        worst = max(worst, 0.0 if name in WITHOUT_LIMIT else ratio)
        verdict = "pass" if ratio <= MOST else "FAIL"
        if name in WITHOUT_LIMIT:
            verdict = f"no limit: {WITHOUT_LIMIT[name]}"
        is_good = is_good and verdict != "FAIL"
        _say(f"{name:42} {small:>9.2f} {large:>9.2f} {ratio:>7.2f}  {verdict}")
    _say(f"largest ratio with a limit: {worst:.2f}")
    return is_good


async def memory() -> bool:
    """Of `pilotlight up` and all that it started, without PostgreSQL, half a minute after it was ready."""
    with tempfile.TemporaryDirectory(prefix="pilotlight-scale-", ignore_cleanup_errors=True) as folder:
        async with up(Path(folder) / "home", env={"SIMULATOR_SPEED": "1"}) as running:
            await asyncio.sleep(30)
            ours = theirs = 0.0
            for process in [tree := psutil.Process(running.pid), *tree.children(recursive=True)]:
                if "postgres" in process.name():
                    # Its processes share most of what they use; each counts for its part of that.
                    shares = process.memory_full_info()
                    theirs += getattr(shares, "pss", shares.rss) / 2**20
                else:
                    ours += process.memory_info().rss / 2**20
    _say(f"memory of an idle `pilotlight up`: {ours:.0f} MB, and {theirs:.0f} MB for PostgreSQL")
    return ours < LARGEST_IDLE_MB


def _size(given: argparse.Namespace) -> str:
    return f"{given.instances} instances, {given.events} events, {given.rows} rows of {','.join(given.only)}"


async def _another(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'large')"):
            await connection.execute("CREATE DATABASE large")
    finally:
        await connection.close()
    return f"{url.rpartition('/')[0]}/large"


async def _may_checkpoint(connection: Any) -> bool:
    return bool(await connection.fetchval("SELECT pg_has_role('pg_checkpoint', 'usage')"))


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each other table; a hundredth of them waits")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas; else all, and memory")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", default=None, help="where there is room for 10 GB")
    parser.add_argument("--keep", type=Path, help="keep what was filled in this folder, and ask it again the next time")
    parser.add_argument("--memory", action="store_true", help="only the memory of an idle `pilotlight up`")
    given = parser.parse_args()
    given.only = given.only.split(",")
    if unknown := set(given.only) - {*PARTS}:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    is_good = asyncio.run(memory()) if given.memory or len(given.only) == len(PARTS) else True
    if not given.memory:
        is_good = asyncio.run(scale(given)) and is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
