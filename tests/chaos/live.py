"""Subscribers are cut, API processes and PostgreSQL are killed, and each subscriber still gets the whole log.

python -m tests.chaos.live                       100 subscribers for a minute
python -m tests.chaos.live --seed 7 --seconds 20 --subscribers 40
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import aiohttp
import asyncpg
import psutil

from server.auth.tokens import create_token, new_secret
from server.clock import new_id
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres, find_running
from server.db.migrate import upgrade
from server.db.notify import Notifier
from server.db.outages import DATABASE_ERRORS
from server.db.tables import Token
from server.db.timeouts import Timeouts
from server.enums import Role
from server.events.event import EventType
from server.events.outbox import append
from tests.chaos.subscribers import LONGEST_QUIET, Subscriber, SubscriberPool
from tests.support.cursors import head_cursor
from tests.support.processes import Pilotlight, free_port, pilotlight

WRITERS = 8


@dataclass
class Plan:
    """How much of everything."""

    seed: int = 1
    seconds: float = 60.0
    subscribers: int = 100
    pause: float = 0.02  # of each writer between two commits: as fast as so many subscribers in one process can read
    kill_api_every: float = 6.0
    kill_postgres_every: float = 15.0
    cut_every: float = 1.5  # a subscriber's connection lives about so long


@dataclass
class Report:
    """What happened, and whether it was right."""

    counts: Counter[str]
    problems: list[str]

    def lines(self) -> list[str]:
        counts = [f"  {name:42} {count:>9,}" for name, count in self.counts.items()]
        return [*counts, "", *(self.problems or ["  every subscriber's record equals the log"])]


async def chaos(plan: Plan) -> Report:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-chaos-")))
        server = await stack.enter_async_context(EmbeddedPostgres(home))
        await upgrade(server.url)
        database = Database(server.url, pool_size=WRITERS + 2, timeouts=Timeouts(statement=timedelta(seconds=10)))
        stack.push_async_callback(database.close)
        signals = Notifier(database)
        signals.start()
        stack.push_async_callback(signals.stop)
        run = Run(plan, home, server.url, database)
        await run.prepare()
        return await run.go()


class Run:
    def __init__(self, plan: Plan, home: Path, url: str, database: Database) -> None:
        self._plan, self._home, self._url, self._database = plan, home, url, database
        self._random = random.Random(plan.seed)
        self._token = new_secret()
        self._project_id = UUID(int=0)
        self._counts: Counter[str] = Counter()
        self._committed: list[list[str]] = [[] for _ in range(WRITERS)]
        self._is_over = asyncio.Event()  # nothing more is written
        self._ports = [free_port(), free_port()]
        self._watching = SubscriberPool(
            self._token, self._ports, self._random, self._counts, self._is_over, cut_every=plan.cut_every
        )

    async def prepare(self) -> None:
        async with self._database.write() as session:
            token_id = await create_token(
                session, project="chaos", name="chaos", role=Role.OPERATOR, secret=self._token
            )
            self._project_id = (await session.get_one(Token, token_id)).project_id

    async def go(self) -> Report:
        plan = self._plan
        async with AsyncExitStack() as stack:
            apis = [await stack.enter_async_context(Api(self._url, port).running()) for port in self._ports]
            for api in apis:
                await api.answers()
            start = await head_cursor(self._database)
            subscribers = [Subscriber(number, start, cursor=start) for number in range(plan.subscribers)]
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(self._watching.follow(subscriber)) for subscriber in subscribers]
                breaking = tasks.create_task(self._break_things(apis))
                writing = [tasks.create_task(self._write(number)) for number in range(WRITERS)]
                await asyncio.sleep(plan.seconds)
                self._is_over.set()
                await asyncio.gather(*writing)
                await breaking
                log = await self._log()
                await self._until_all_have(subscribers, log)
                for task in watching:
                    task.cancel()
        return self._judge(subscribers, log)

    async def _write(self, number: int) -> None:
        """One instance's changes, one after the other. One whose answer was lost may or may not be in the log."""
        instance_id = new_id()
        while not self._is_over.is_set():
            try:
                async with self._database.write() as session:
                    event_id = await append(
                        session,
                        type=EventType.INSTANCE_CHANGED,
                        project_id=self._project_id,
                        instance_id=instance_id,
                        data={"writer": number},
                    )
                self._committed[number].append(f"evt_{event_id.hex}")
            except DATABASE_ERRORS:
                self._counts["commits whose answer was lost"] += 1
                await asyncio.sleep(0.05)
            await asyncio.sleep(self._plan.pause)

    async def _break_things(self, apis: list["Api"]) -> None:
        plan = self._plan
        kill_api, kill_postgres = plan.kill_api_every, plan.kill_postgres_every
        began = time.monotonic()
        while not self._is_over.is_set():
            await asyncio.sleep(0.2)
            passed = time.monotonic() - began
            if passed > kill_postgres:
                kill_postgres += plan.kill_postgres_every
                running = find_running(self._home)
                if running is not None:
                    os.kill(running.pid, signal.SIGKILL)
                    self._counts["PostgreSQL killed"] += 1
            if passed > kill_api:
                kill_api += plan.kill_api_every
                leading = [api for api in apis if await self._leads(api)]
                leader = leading[0] if leading else None
                api = leader if leader is not None and self._random.random() < 0.5 else self._random.choice(apis)
                self._counts["API processes killed"] += 1
                self._counts["of them while they led the log"] += api is leader
                await api.kill_and_start()
        for api in apis:
            await api.answers()

    async def _leads(self, api: "Api") -> bool:
        """Whether that process's sequencer is the elected one; its port tells the session's process apart."""
        with suppress(*DATABASE_ERRORS):
            connection = await asyncpg.connect(self._url, timeout=5)
            try:
                ports = await connection.fetch(
                    "SELECT client_port FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory'"
                )
            finally:
                await connection.close()
            return bool({row["client_port"] for row in ports} & api.local_ports())
        return False

    async def _log(self) -> list[str]:
        """What the log has, once everything that was written is in it."""
        while True:
            try:
                async with self._database.read() as session:
                    raw = await session.connection()
                    waiting = (await raw.exec_driver_sql("SELECT count(*) FROM outbox")).scalar_one()
                    rows = await raw.exec_driver_sql("SELECT id FROM event ORDER BY position")
                    log = [f"evt_{row.id.hex}" for row in rows]
                if waiting == 0:
                    return log
            except DATABASE_ERRORS:
                pass
            await asyncio.sleep(0.1)

    async def _until_all_have(self, subscribers: list[Subscriber], log: list[str]) -> None:
        best, since = -1, time.monotonic()
        while (done := sum(len(subscriber.seen) for subscriber in subscribers)) < len(log) * len(subscribers):
            if done > best:
                best, since = done, time.monotonic()
            elif time.monotonic() - since > LONGEST_QUIET:
                return
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # for what would come twice

    def _judge(self, subscribers: list[Subscriber], log: list[str]) -> Report:
        place = {id: number for number, id in enumerate(log)}
        wrong: Counter[str] = Counter()
        problems: list[str] = []
        problems += [f"  {each}" for each in self._watching.problems]
        for subscriber in subscribers:
            seen = Counter(subscriber.seen)
            wrong["missing"] += len(log) - len(seen.keys() & place.keys())
            wrong["doubled"] += sum(count - 1 for count in seen.values())
            order = [place.get(id, -1) for id in subscriber.seen]
            wrong["out of order"] += sum(a > b for a, b in pairwise(order))
            if subscriber.seen != log:
                problems.append(f"  subscriber {subscriber.number} has {len(subscriber.seen)} of {len(log)}")
        lost = sum(id not in place for written in self._committed for id in written)
        orders = [[place.get(id, -1) for id in written] for written in self._committed]
        mixed = sum(a > b for order in orders for a, b in pairwise(order))
        if lost or mixed:
            problems.append(f"  {lost} commits are not in the log, {mixed} of one instance are in the wrong order")
        counts = Counter({"events in the log": len(log), "subscribers": len(subscribers)})
        counts["messages received"] = sum(len(subscriber.seen) for subscriber in subscribers)
        counts.update(self._counts)
        for name in ("missing", "doubled", "out of order"):
            counts[name] = wrong[name]
        counts["commits that the log lost"] = lost
        return Report(counts, problems)


class Api:
    """`pilotlight serve` on one port, however often it is killed."""

    def __init__(self, url: str, port: int) -> None:
        self._port = port
        self._settings = {
            "DATABASE_URL": url,
            "NOVITA_API_KEY": "sk_chaos",
            "NOVITA_API_BASE_URL": "http://127.0.0.1:1",
            "LOG_LEVEL": "warning",
        }
        self._stack = AsyncExitStack()
        self._process: Pilotlight | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Api"]:
        await self._start()
        try:
            yield self
        finally:
            await self._stack.aclose()

    async def _start(self) -> None:
        self._process = await self._stack.enter_async_context(
            pilotlight("serve", "--port", str(self._port), env=self._settings)
        )

    async def kill_and_start(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.process.wait()
        await self._start()

    async def answers(self) -> None:
        """Until it does; one that could not start, for want of a database, is started again."""
        deadline = time.monotonic() + 60
        async with aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    address = f"http://127.0.0.1:{self._port}/readyz"
                    async with session.get(address, timeout=aiohttp.ClientTimeout(total=3)) as response:
                        if response.status == 200:
                            return
                assert time.monotonic() < deadline, self._process and self._process.said
                if self._process is not None and self._process.process.returncode is not None:
                    await self._start()
                await asyncio.sleep(0.1)

    def local_ports(self) -> set[int]:
        assert self._process is not None
        with suppress(psutil.Error):
            return {each.laddr.port for each in psutil.Process(self._process.pid).net_connections() if each.laddr}
        return set()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--seconds", type=float, default=Plan.seconds)
    parser.add_argument("--subscribers", type=int, default=Plan.subscribers)
    parser.add_argument("--pause", type=float, default=Plan.pause)
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    report = asyncio.run(chaos(Plan(**vars(given))))
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
