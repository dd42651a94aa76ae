"""Claims the jobs of the lined classes: each waits for its turn in the table, and holds no slot until then."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import asyncpg
import structlog

from server.db.database import Database
from server.db.notify import QUIET_POLL
from server.db.outages import DATABASE_ERRORS
from server.queue.demand import Demand
from server.queue.exchange import PLANNER, ClaimedJob, JobTurn
from server.queue.kinds import JobClass
from server.queue.line import NO_PROJECT, Peek, claim_in_line, peek
from server.queue.producer import Producer

log = structlog.get_logger(__name__)

TURNS_MAX = 10  # taken for one claim
WRITE_SECONDS = 0.02  # until a result is usually written


class JobTurns(Protocol):
    async def take(self, job_class: JobClass, at_most: int) -> Sequence[JobTurn | None]:
        """Wait until at least one job of the class may run; None is a turn that needs no giving back."""
        ...


class FreeTurns:
    """Every job may run at once."""

    async def take(self, job_class: JobClass, at_most: int) -> Sequence[JobTurn | None]:
        return [None] * at_most


class LineProducer:
    """One task per lined class: it looks whether a job is due, waits for a turn and a slot, then claims."""

    def __init__(
        self,
        database: Database,
        worker_id: UUID,
        demand: Demand,
        turns: JobTurns,
        producer: Producer,
        kinds: Mapping[JobClass, Sequence[str]],
        *,
        poll_interval: timedelta,
        command_timeout: timedelta,
        on_claimed: Callable[[Sequence[ClaimedJob]], None],
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._demand = demand
        self._turns = turns
        self._producer = producer
        self.kinds = kinds
        self._poll_seconds = poll_interval.total_seconds()
        self._command_timeout = command_timeout.total_seconds()
        self._on_claimed = on_claimed
        self._wakeups = {job_class: asyncio.Event() for job_class in kinds}
        self._served_last = dict.fromkeys(kinds, NO_PROJECT)
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._using = asyncio.Lock()
        self._seen: Mapping[JobClass, Peek] = {}
        self._seen_at = 0.0
        self._without_room: set[JobClass] = set()
        self._is_open = True

    def wake(self) -> None:
        """There may be a job, or a free slot."""
        for wakeup in self._wakeups.values():
            wakeup.set()

    def slot_freed(self) -> None:
        """A job has ended: lines that had no room may have some."""
        while self._without_room:
            self._wakeups[self._without_room.pop()].set()

    def wake_in(self, job_class: JobClass, seconds: float) -> None:
        """A job of that line runs again after that time, and is about to be written."""
        if seconds < self._poll_seconds:
            asyncio.get_running_loop().call_later(seconds + WRITE_SECONDS, self._wakeups[job_class].set)

    def close(self) -> None:
        """Claim no more jobs."""
        self._is_open = False

    async def run(self, job_class: JobClass) -> None:
        """Serve one line."""
        wakeup = self._wakeups[job_class]
        while True:
            wakeup.clear()
            pause = self._poll_seconds
            try:
                room = self._demand.line_room(job_class) if self._is_open else 0
                if room:
                    seen = await self._peek(job_class)
                    # No more turns than jobs: what is taken and given back is missing elsewhere meanwhile.
                    if seen.due and await self._claim_next(job_class, min(room, seen.due, TURNS_MAX)):
                        continue
                    # The session wakes all lines when there may be a job. A line alone would look a second time.
                    is_far = seen.next_in is None or seen.next_in > 3 * pause
                    pause = 2 * max(pause, QUIET_POLL.total_seconds()) if is_far else seen.next_in or 0.0
                else:
                    self._without_room.add(job_class)
            except DATABASE_ERRORS as error:
                log.warning("worker.line_failed", error=type(error).__name__)
                pause = random.uniform(0.1, 0.5)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.01)):
                    await wakeup.wait()

    async def _peek(self, job_class: JobClass) -> Peek:
        """Look whether a job is due. Lines that are woken together look together: one query for all of them."""
        asked_at = time.monotonic()
        async with self._connected() as connection:
            if self._seen_at < asked_at:
                await asyncio.sleep(0)  # the others that were woken now ask, too
                self._seen_at = time.monotonic()
                self._seen = await peek(connection, self.kinds, at_most=TURNS_MAX)
            return self._seen[job_class]

    async def claim_once(self) -> None:
        """Claim what is due in every line without waiting for a turn."""
        for job_class in self.kinds:
            room = self._demand.line_room(job_class)
            self._on_claimed(await self._claim(job_class, [None] * room))

    async def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _claim_next(self, job_class: JobClass, at_most: int) -> bool:
        """Wait for a turn, then claim; False if there was nothing to claim."""
        turns = await self._turns.take(job_class, at_most)
        jobs: list[ClaimedJob] = []
        try:
            room = self._demand.line_room(job_class) if self._is_open else 0  # slots may have gone while we waited
            if room:
                jobs = await self._claim(job_class, turns[:room])
        finally:
            for turn in turns[len(jobs) :]:
                if turn is not None:
                    turn.give_back()
        self._on_claimed(jobs)
        return bool(jobs)

    async def _claim(self, job_class: JobClass, turns: Sequence[JobTurn | None]) -> list[ClaimedJob]:
        claim = random.getrandbits(63)
        self._producer.track_claim(claim, 1)  # before it is sent, so that it is never taken for a lost one
        try:
            async with self._connected() as connection:
                jobs = await claim_in_line(
                    connection,
                    job_class,
                    self.kinds[job_class],
                    at_most=len(turns),
                    after_project=self._served_last[job_class],
                    worker_id=self._worker_id,
                    claim=claim,
                )
        except DATABASE_ERRORS:
            self._producer.on_lost_claim()
            raise
        else:
            self._producer.track_claim(claim, len(jobs))
        finally:
            self._producer.release_claim(claim)
        for job, turn in zip(jobs, turns, strict=False):
            job.turn = turn
        self._demand.add_lined(job_class, len(jobs))
        if jobs:
            self._served_last[job_class] = jobs[-1].project_id or NO_PROJECT
        return jobs

    @contextlib.asynccontextmanager
    async def _connected(self) -> "AsyncGenerator[asyncpg.Connection[asyncpg.Record]]":
        """The session's one connection for lines; a new one after an error."""
        async with self._using:
            if self._connection is None:
                settings = {"application_name": "pilotlight worker", **PLANNER}
                self._connection = await self._database.connect(
                    server_settings=settings, command_timeout=self._command_timeout
                )
            try:
                yield self._connection
            except BaseException:
                self._connection.terminate()
                self._connection = None
                raise
