"""Job kinds for tests, and a world to run them in."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from server.db.database import Database
from server.db.notify import Notifier
from server.queue.claim import Claim
from server.queue.enqueue import enqueue
from server.queue.handler import Done, Failure, Handler, Outcome
from server.queue.kinds import Priority, Work
from server.queue.worker import Worker


@dataclass(frozen=True, slots=True)
class Note(Work):
    """Whatever the test's handler does with it."""

    kind = "TEST_NOTE"

    text: str = ""


@dataclass(frozen=True, slots=True)
class Urgent(Work):
    kind = "TEST_URGENT"
    priority = Priority.HIGH

    text: str = ""


@dataclass(frozen=True, slots=True)
class Chore(Work):
    kind = "TEST_CHORE"
    priority = Priority.LOW

    text: str = ""


@dataclass(frozen=True, slots=True)
class Narrow(Work):
    """At most two at once in one process."""

    kind = "TEST_NARROW"
    concurrency = 2

    text: str = ""


@dataclass(frozen=True, slots=True)
class Stubborn(Work):
    """Has more attempts than others."""

    kind = "TEST_STUBBORN"
    max_attempts = 5


KINDS: tuple[type[Work], ...] = (Note, Urgent, Chore, Narrow, Stubborn)
Answer = Callable[[Any, Claim], Awaitable[Outcome]]


async def done(_work: Work, _claim: Claim) -> Outcome:
    return Done()


@dataclass
class World:
    """A database, workers on it, and what their handlers saw."""

    database: Database
    notifier: Notifier
    ran: list[str] = field(default_factory=list)
    failures: list[tuple[str, Failure]] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)

    async def enqueue(self, *works: Work, **options: Any) -> list[int]:
        async with self.database.write() as session:
            return [await enqueue(session, work, **options) for work in works]

    def worker(self, answer: Answer = done, **options: Any) -> Worker:
        async def run(work: Any, claim: Claim) -> Outcome:
            self.ran.append(getattr(work, "text", ""))
            return await answer(work, claim)

        async def failed(_session: object, work: Work, failure: Failure) -> None:
            self.failures.append((work.kind, failure))

        options.setdefault("lease", timedelta(seconds=5))
        options.setdefault("shutdown_timeout", timedelta(seconds=2))
        worker = Worker(self.database, self.notifier, {work.kind: Handler(run, failed) for work in KINDS}, **options)
        self.workers.append(worker)
        return worker

    def start(self, answer: Answer = done, **options: Any) -> Worker:
        worker = self.worker(answer, **options)
        worker.start()
        return worker

    async def rows(self, query: str, *args: Any) -> list[asyncpg.Record]:
        return await self.database.raw.fetch(query, *args)

    async def value(self, query: str, *args: Any) -> Any:
        return await self.database.raw.fetchval(query, *args)

    async def execute(self, query: str, *args: Any) -> None:
        await self.database.raw.execute(query, *args)

    async def jobs(self) -> list[tuple[Any, ...]]:
        """(kind, status, attempts) of every unfinished job."""
        return [tuple(row) for row in await self.rows("SELECT kind, status, attempts FROM job ORDER BY id")]

    async def history(self) -> list[tuple[Any, ...]]:
        """(kind, status, attempts, error_code) of every finished job."""
        rows = await self.rows("SELECT kind, status, attempts, error_code FROM job_history ORDER BY id")
        return [tuple(row) for row in rows]


@pytest.fixture
async def world(database: Database, signals: Notifier) -> AsyncIterator[World]:
    world = World(database, signals)
    yield world
    for worker in world.workers:
        await worker.stop()
