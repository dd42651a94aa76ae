"""The audit log with a thousand and with a million records: size, pages, a batch of writes, clean-up.

    python -m bench.audit [--rows 1000000] [--rounds 30]

The median of each statement's own time counts. A page of a project's log must take at most twice as long with many
records as with a thousand; ends with 1 if it does not.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from server.audit.log import INSERT_BATCH, prune_audit, to_json
from server.audit.queries import AuditFilter, conditions_on_audit
from server.audit.record import AuditRecord
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.db.pages import newest_first
from server.db.tables import AuditEventRow

FEW = 1_000
PROJECTS = 10
BATCH = 32
WANTED = 2.0
FILL = """
    INSERT INTO audit_event (id, project_id, token_id, created_at, request_id, mutation, input_digest, target, outcome)
    SELECT gen_random_uuid(), ('00000000-0000-7000-8000-' || lpad(to_hex(1 + n % $2), 12, '0'))::uuid,
           gen_random_uuid(), now() - n * interval '1 s', 'req_' || substr(md5(n::text), 1, 20), 'createInstance',
           decode(md5(n::text), 'hex'), 'inst_' || md5(n::text), 'ACCEPTED'
    FROM generate_series($1::int, $3::int - 1) AS n
"""


async def main(rows: int, rounds: int) -> int:
    async with AsyncExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        postgres = await stack.enter_async_context(EmbeddedPostgres(Path(home), durable=False))
        await upgrade(postgres.url)
        database = Database(postgres.url)
        stack.push_async_callback(database.close)
        pages: list[float] = []
        # A connection of its own: the product's end a statement after DATABASE_TIMEOUT, and a million rows take longer.
        filler = await asyncpg.connect(postgres.url)
        stack.push_async_callback(filler.close)
        for start, size in ((0, FEW), (FEW, rows)):
            await filler.execute(FILL, start, PROJECTS, size)
            await filler.execute("VACUUM ANALYZE audit_event")
            pages.append(await _report(database, size, rounds))
        deleted = await prune_audit(database.raw, older_than=timedelta(seconds=rows // 2), limit=1000)
        print(f"clean-up of a batch: {deleted} deleted")
        return 0 if pages[1] <= pages[0] * WANTED else 1


async def _report(database: Database, size: int, rounds: int) -> float:
    project = UUID("00000000-0000-7000-8000-000000000001")
    statements: dict[str, Callable[[], Awaitable[Any]]] = {
        "page of a project": lambda: _page(database, AuditFilter(project_id=project)),
        "page of all projects": lambda: _page(database, AuditFilter()),
        f"write of {BATCH}": lambda: database.raw.execute(INSERT_BATCH, to_json([_record() for _ in range(BATCH)])),
    }
    times = {name: [await _time(statement) for _ in range(rounds)] for name, statement in statements.items()}
    medians = {name: statistics.median(each) for name, each in times.items()}
    total = await database.raw.fetchval("SELECT pg_total_relation_size('audit_event')")
    shown = "   ".join(f"{name} {took:.2f} ms" for name, took in medians.items())
    print(f"{size:>9,} records: {total / size:,.0f} bytes each with indexes   {shown}", flush=True)
    return medians["page of a project"]


async def _page(database: Database, wanted: AuditFilter) -> None:
    await newest_first(database, AuditEventRow, conditions_on_audit(wanted), first=51)


def _record() -> AuditRecord:
    project, token = UUID(int=1), UUID(int=2)
    return AuditRecord(project, token, "req_0123456789abcdef0123", "createInstance", bytes(16), f"inst_{'0' * 32}")


async def _time(statement: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await statement()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.rows, given.rounds)))
