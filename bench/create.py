"""createInstance over HTTP with warm caches and durable commits, against bare asyncpg writing the same rows.

    python -m bench.create                       the ratio at 1 and at 32 at once
    python -m bench.create --seconds 5           longer rounds
    python -m bench.create --budget              only what budgets cost a create, 32 at once: a project with a budget
                                                 beside one without, and that beside a server that never asks

The rows of a create are an instance, an operation, two events, a job and a record of the audit log: all that a create
without a key has to leave behind. Beside that, the rate is compared with a peer that writes only one of the events and
no record, as the first versions of this bench did.

All sides write to the same embedded PostgreSQL in alternating rounds, so that other load hits both alike. Every
accepted create is then counted on disk. Last, with a worker running: how long from the acceptance until the provider
is called, and until it has answered.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import orjson
import psutil
import uvloop

from bench.reads_client import CallConnection
from server.auth.tokens import create_token, new_secret
from server.clock import new_id
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.enums import Role

WANTED = {1: 0.5, 32: 0.6}  # by creates at once
ROUNDS = 3
CREATES = 100
PILOTLIGHT = str(Path(sys.executable).with_name("pilotlight"))
MUTATION = """mutation Create($input: CreateInstanceInput!) {
  createInstance(input: $input) {
    instance { id status estimatedReadyAt } operation { id status } replayed errors { code message path }
  }
}"""
INPUT = {
    "productName": "RTX 4090 24GB",
    "templateId": "107672",
    "env": [{"key": "MODE", "value": "train"}],
    "labels": [{"key": "team", "value": "vision"}],
}
LIMITS_OFF = {"REQUEST_RATE_LIMIT": "0", "REQUEST_RATE_LIMIT_PER_PROJECT": "0"}
WANTED_GUARDED, WANTED_UNGUARDED = 0.8, 0.98
BUDGET_ROUNDS = 10  # their ratios are near 1, and other load differs from one round to the next
# The same server without the part of its statement that asks for budgets and quotas.
NEVER_ASKS = """
from server.instances.commands import create_statement as statement
for name in ("CONFLICTS", "UNASKED"):
    asks = getattr(statement, name)
    assert statement.HAS_GUARDS in asks
    setattr(statement, name, asks.replace(statement.HAS_GUARDS, "NULL::boolean"))
"""
RUN = """
from server.cli.main import main
main()
"""
BUDGET = """
    INSERT INTO budget (id, project_id, name, period, timezone, limit_micros, thresholds, action, exempt, horizon_s)
    SELECT gen_random_uuid(), id, 'all', 'MONTH', 'UTC', 1000000000000000, '[]', 'BLOCK', '[]', 3600
    FROM project WHERE name = 'guarded'
"""
END_ALL = """
    UPDATE operation SET status = 'CANCELLED', phase = 'OVER', finished_at = now() WHERE status = 'QUEUED'
"""
# The newest row of each kind, and its table. The sequencer may have moved an event on already; it looks the same there.
NEWEST = "SELECT * FROM event WHERE type = '{}' ORDER BY position DESC LIMIT 1"
ROWS = {
    "instance": ("instance", "SELECT * FROM instance ORDER BY id DESC LIMIT 1"),
    "operation": ("operation", "SELECT * FROM operation ORDER BY id DESC LIMIT 1"),
    "created": ("outbox", NEWEST.format("instance.created")),
    "started": ("outbox", NEWEST.format("operation.started")),
    "job": ("job", "SELECT * FROM job ORDER BY id DESC LIMIT 1"),
    "audit": ("audit_event", "SELECT * FROM audit_event ORDER BY id DESC LIMIT 1"),
}
FOUR = ("instance", "operation", "started", "job")


async def main(seconds: float, *, with_budget: bool = False) -> bool:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        url = (await stack.enter_async_context(EmbeddedPostgres(home))).url
        await upgrade(url)
        token = await _token(url)
        simulator = _start(stack, [sys.executable, "-m", "server.simulator", "--stock-factor", "100000"], {})
        provider = _line(simulator)
        env = {
            "DATABASE_URL": url,
            "NOVITA_API_KEY": "sk_bench",
            "NOVITA_API_BASE_URL": provider,
            "NOVITA_RATE_LIMIT": "0",
            "LOG_LEVEL": "warning",
            "DATABASE_POOL_SIZE": "34",
            "MAX_PENDING_CREATES": "1000000",  # no worker runs while creates are counted
            "RECONCILE_INTERVAL": "1h",
        }
        ready = home / "ready.json"
        api = psutil.Process(_start(stack, [PILOTLIGHT, "serve", "--port", "0", "--ready-file", str(ready)], env).pid)
        graphql_url = await _ready(ready)
        caller = Caller(stack, graphql_url, token)
        await caller.create()  # warms the caches and gives the rows to copy
        bare = await Bare.connect(url, stack)
        if with_budget:
            guarded = await _guarded(url, bare, graphql_url, stack)
            # Neither is the first server, which numbers the events of all. PostgreSQL has connections for small pools.
            small = env | {"DATABASE_POOL_SIZE": "10"}
            asks, never_asks = [
                Caller(stack, await _start_beside(stack, home / f"{number}.json", script, small), token)
                for number, script in enumerate((RUN, NEVER_ASKS + RUN))
            ]
            is_enough = await compare_budget(guarded, caller, bare, seconds, "with a budget", WANTED_GUARDED)
            shown = "beside a server that never asks for budgets"
            return await compare_budget(asks, never_asks, bare, seconds, shown, WANTED_UNGUARDED) and is_enough
        is_enough = True
        used, before = sum(api.cpu_times()[:2]), caller.accepted
        for at_once in (1, 32):
            is_enough = await compare(caller, bare, at_once, seconds) and is_enough
        used = (sum(api.cpu_times()[:2]) - used) / (caller.accepted - before)
        print(f"CPU of the API process: {used * 1000:.1f} ms a create")
        accepted = await bare.count("SELECT count(*) FROM instance WHERE name LIKE 'bench-%'")
        print(f"accepted {caller.accepted:,}, on disk {accepted:,}")
        if accepted != caller.accepted:
            return False
        await bare.execute("DELETE FROM job")
        _start(stack, [PILOTLIGHT, "worker"], env | {"MAX_CONCURRENT_JOBS": "50"})
        await until_called(caller, bare)
        return is_enough


class Caller:
    """Creates over HTTP, and counts what was accepted; on as many connections as there are creates at once."""

    def __init__(self, stack: AsyncExitStack, url: str, token: str) -> None:
        self._stack = stack
        self._url = url
        self._token = token
        self._free: list[CallConnection] = []
        self.accepted = 0

    async def create(self) -> str:
        body = orjson.dumps({"query": MUTATION, "variables": {"input": {**INPUT, "name": f"bench-{uuid4().hex}"}}})
        connection = await self._connection()
        answer = orjson.loads(await connection.post(body))
        self._free.append(connection)
        payload = answer["data"]["createInstance"]
        if payload["errors"]:
            raise SystemExit(f"refused: {payload['errors']}")
        self.accepted += 1
        return payload["instance"]["id"]

    async def _connection(self) -> CallConnection:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed:  # as the server does with those that were idle while the others had their turn
                return connection
        to = urlsplit(self._url)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: CallConnection(self._url, self._token), to.hostname, to.port
        )
        self._stack.callback(connection.close)
        return connection


class Bare:
    """The same rows with nothing around them: BEGIN, prepared INSERTs, COMMIT."""

    def __init__(self, pool: "asyncpg.Pool[Any]", statements: dict[str, str], rows: dict[str, dict[str, Any]]) -> None:
        self._pool = pool
        self._statements = statements
        self._rows = rows

    @classmethod
    async def connect(cls, url: str, stack: AsyncExitStack) -> "Bare":
        pool = await asyncpg.create_pool(url, min_size=32, max_size=32)
        stack.push_async_callback(pool.close)
        rows: dict[str, dict[str, Any]] = {}
        statements: dict[str, str] = {}
        for kind, (table, newest) in ROWS.items():
            row = await pool.fetchrow(newest)
            if row is None:
                raise SystemExit(f"there is no row to copy: {newest}")
            known = {name for (name,) in await pool.fetch(_COLUMNS, table)}
            left_out = {"seq", "position"} | ({"id"} if table == "job" else set[str]())
            rows[kind] = {name: value for name, value in row.items() if name in known - left_out}
            names = list(rows[kind])
            places = ", ".join(f"${number}" for number in range(1, len(names) + 1))
            statements[kind] = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"
        return cls(pool, statements, rows)

    async def create(self) -> None:
        await self._insert(ROWS)

    async def create_four(self) -> None:
        await self._insert(FOUR)

    async def _insert(self, kinds: Iterable[str]) -> None:
        instance_id, operation_id = new_id(), new_id()
        ids = {"instance_id": instance_id, "operation_id": operation_id}
        changed = {
            "instance": {"id": instance_id, "name": f"bare-{instance_id.hex}"},
            "operation": {"id": operation_id, "instance_id": instance_id},
            "created": {"id": new_id(), **ids},
            "started": {"id": new_id(), **ids},
            "job": {"instance_id": instance_id},
            "audit": {"id": new_id(), "target": f"inst_{instance_id.hex}"},
        }
        async with self._pool.acquire() as connection, connection.transaction():
            for kind in kinds:
                await connection.execute(self._statements[kind], *{**self._rows[kind], **changed[kind]}.values())

    async def count(self, query: str) -> int:
        return await self._pool.fetchval(query)

    async def execute(self, query: str) -> None:
        await self._pool.execute(query)

    async def fetch(self, query: str) -> list[Any]:
        return await self._pool.fetch(query)


_COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"


async def compare(caller: Caller, bare: Bare, at_once: int, seconds: float) -> bool:
    sides = {"bare": bare.create, "four rows": bare.create_four, "createInstance": caller.create}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(ROUNDS + 1):
        for name, create in sides.items():
            rate = await _rate(create, at_once, seconds if number else 0.5)
            if number:  # the first round opens the connections and fills the statement caches
                rates[name].append(rate)
    ratio, of_four = (
        statistics.median(ours / theirs for ours, theirs in zip(rates["createInstance"], rates[name], strict=True))
        for name in ("bare", "four rows")
    )
    verdict = "PASS" if ratio >= WANTED[at_once] else "FAIL"
    ours, theirs, four = (statistics.median(rates[name]) for name in ("createInstance", "bare", "four rows"))
    print(
        f"{at_once:>3} at once: createInstance {ours:6,.0f}/s   bare asyncpg {theirs:6,.0f}/s   {ratio:.2f}  {verdict}"
        f" (at least {WANTED[at_once]})"
    )
    print(f"             bare asyncpg writing only four of the rows {four:6,.0f}/s   {of_four:.2f}", flush=True)
    return ratio >= WANTED[at_once]


async def compare_budget(caller: Caller, beside: Caller, bare: Bare, seconds: float, name: str, wanted: float) -> bool:
    """Creates of the round before are ended, as a worker would: what they reserve is read by every admission."""
    ratios: list[float] = []
    for number in range(BUDGET_ROUNDS + 1):
        rates = dict[Caller, float]()
        for each in (caller, beside) if number % 2 else (beside, caller):
            rates[each] = await _rate(each.create, 32, seconds if number else 0.5)
            await bare.execute(END_ALL)
        if number:
            ratios.append(rates[caller] / rates[beside])
    ratio, quarters = statistics.median(ratios), statistics.quantiles(ratios, n=4)
    verdict = "PASS" if ratio >= wanted else "FAIL"
    print(
        f" 32 at once: {name} {ratio:.2f} of the rate without  {verdict} (at least {wanted};"
        f" half of {len(ratios)} rounds {quarters[0]:.2f} to {quarters[2]:.2f})",
        flush=True,
    )
    return ratio >= wanted


async def _guarded(url: str, bare: Bare, graphql_url: str, stack: AsyncExitStack) -> Caller:
    """A caller whose project has a budget that is large enough."""
    token = await _token(url, "guarded")
    await bare.execute(BUDGET)
    return Caller(stack, graphql_url, token)


async def _rate(create: Any, at_once: int, seconds: float) -> float:
    until = time.perf_counter() + seconds
    done = 0

    async def one_after_another() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await create()
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    return done / (time.perf_counter() - began)


async def until_called(caller: Caller, bare: Bare) -> None:
    """One create every 50 ms; the attempt is committed right before the call, and ended right after its answer."""
    await caller.create()
    await _until_answered(bare, 1)  # the worker is up and its caches are warm
    await bare.execute("DELETE FROM attempt")
    for _ in range(CREATES):
        await caller.create()
        await asyncio.sleep(0.05)
    await _until_answered(bare, CREATES)
    rows = await bare.fetch(
        "SELECT extract(epoch FROM attempt.created_at - operation.created_at)::float8 AS called,"
        " extract(epoch FROM attempt.finished_at - operation.created_at)::float8 AS answered"
        " FROM attempt JOIN operation ON operation.id = attempt.operation_id WHERE attempt.finished_at IS NOT NULL"
    )
    for what in ("called", "answered"):
        cuts = statistics.quantiles([row[what] * 1000 for row in rows], n=100)
        print(f"acceptance until provider {what:>8}: p50 {cuts[49]:6.1f} ms   p99 {cuts[98]:6.1f} ms ({len(rows)})")


async def _until_answered(bare: Bare, many: int) -> None:
    deadline = time.monotonic() + 60
    while await bare.count("SELECT count(*) FROM attempt WHERE finished_at IS NOT NULL") < many:
        if time.monotonic() > deadline:
            raise SystemExit(f"the worker did not create {many} instances within a minute")
        await asyncio.sleep(0.1)


async def _token(url: str, project: str = "bench") -> str:
    database = Database(url)
    secret = new_secret()
    async with database.write() as session:
        await create_token(session, project=project, name="bench", role=Role.OPERATOR, secret=secret)
    await database.close()
    return secret


def _start(stack: AsyncExitStack, command: list[str], env: dict[str, str]) -> "subprocess.Popen[str]":
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env | LIMITS_OFF)
    stack.callback(_end, process)
    return process


async def _start_beside(stack: AsyncExitStack, ready: Path, script: str, env: dict[str, str]) -> str:
    _start(stack, [sys.executable, "-c", script, "serve", "--port", "0", "--ready-file", str(ready)], env)
    return await _ready(ready)


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def _ready(file: Path) -> str:
    deadline = time.monotonic() + 180
    while not file.exists():
        if time.monotonic() > deadline:
            raise SystemExit("the API did not start")
        await asyncio.sleep(0.05)
    return orjson.loads(file.read_bytes())["graphqlUrl"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each round")
    parser.add_argument("--budget", action="store_true", help="only with a budget beside without")
    given = parser.parse_args()
    sys.exit(0 if uvloop.run(main(given.seconds, with_budget=given.budget)) else 1)
