"""How long `spend` takes for a month with a million entries in the ledger.

    python -m bench.spend [--entries 1000000] [--instances 1000] [--rounds 20]

One project's month: every instance has entries on each of its days. All days before today are summed, as reconcile does
it; a share of today's entries is not. The median of each grouping counts, with the statement's own time only. Promised:
below 50 ms. Ends with 1 if one is not. What counts is the number of instances and days, not that of entries.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.spend.report import SpendGroup, SpendScope, read_spend
from server.spend.sums import sum_entries

MOST_MS = 50.0
PROJECT = UUID(int=1)
DAYS = 30
NOT_SUMMED = 2_000  # entries that were closed since the last reconcile

INSTANCES = """
    INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image)
    SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1, 'i' || n, 'EXITED', 'RTX 4090 24GB', 1,
           60, 'SPOT', 'nginx'
    FROM generate_series(1, $2) AS n
"""
ENTRIES = """
    INSERT INTO cost_entry (project_id, instance_id, machine, labels, price_e5, product_name, region, run_began_at,
                            began_at, ended_at, amount_micros)
    SELECT $1, ('00000000-0000-7000-8000-' || lpad(to_hex(1 + n % $3), 12, '0'))::uuid, 'm' || n % $3,
           jsonb_build_object('team', 't' || n % $3 % 7), 36000, 'product ' || n % $3 % 5,
           (ARRAY['AS-SGP-02', 'CN-HK-01', 'AS-IN-01'])[1 + n % $3 % 3], at, at, at + interval '60 s', 6000
    FROM generate_series(0, $2 - 1) AS n, LATERAL (
        SELECT $4::timestamptz + (n / $3 % $5) * interval '24 hours' + (n / $3 / $5) * interval '10 min'
    ) AS each (at)
"""


async def main(entries: int, instances: int, rounds: int) -> int:
    async with AsyncExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        postgres = await stack.enter_async_context(EmbeddedPostgres(Path(home)))
        await upgrade(postgres.url)
        database = Database(postgres.url)
        stack.push_async_callback(database.close)
        month = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS)
        # A connection of its own: the product's end a statement after DATABASE_TIMEOUT, and a million rows take longer.
        filler = await asyncpg.connect(postgres.url)
        stack.push_async_callback(filler.close)
        await _fill(filler, entries, instances, month)
        scope = SpendScope(PROJECT, month, month + timedelta(days=DAYS + 1))
        slow = 0
        print(f"{entries:,} entries of {instances:,} instances in {DAYS} days")
        for group in SpendGroup:
            times = [await _time(database, scope, group) for _ in range(rounds)]
            median = statistics.median(times)
            slow += median >= MOST_MS
            print(f"  groupBy {group:9} {median:7.1f} ms")
        return 1 if slow else 0


async def _fill(raw: Any, entries: int, instances: int, month: datetime) -> None:
    await raw.execute("INSERT INTO project (id, name) VALUES ($1, 'bench')", PROJECT)
    await raw.execute(INSTANCES, PROJECT, instances)
    await raw.execute(ENTRIES, PROJECT, entries - NOT_SUMMED, instances, month, DAYS)
    await raw.execute("VACUUM ANALYZE cost_entry")  # else the batches are found without their index
    await sum_entries(raw)
    await raw.execute(ENTRIES, PROJECT, NOT_SUMMED, instances, month + timedelta(days=DAYS - 1), 1)
    await raw.execute("VACUUM ANALYZE cost_entry")
    await raw.execute("VACUUM ANALYZE cost_day")


async def _time(database: Database, scope: SpendScope, group: SpendGroup) -> float:
    async with database.read() as session:
        began = time.perf_counter()
        spend = await read_spend(session, scope, group=group, label_key="team" if group is SpendGroup.LABEL else None)
        took = time.perf_counter() - began
    assert spend.total_micros > 0
    return took * 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--instances", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.entries, given.instances, given.rounds)))
