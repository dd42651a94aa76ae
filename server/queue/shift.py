"""One worker id's life: slots that run jobs, lanes that talk to the database, and the lease that holds it together."""

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import structlog

from server.db.engine import Database
from server.db.signals import Signals
from server.queue import metrics
from server.queue.cancel import CANCEL_TOPIC, cancelled_here, claim_cancelled
from server.queue.enqueue import TOPIC
from server.queue.lease import Lease
from server.queue.rescue import give_back_forgotten, rescue
from server.queue.run import ENDED, Finished, Result, Runner, release
from server.queue.stock import Floors, Stock
from server.queue.trouble import DATABASE_TROUBLE
from server.queue.turn import NOTHING, PLANNER, Ask, PutBack, Taken, take_turn

log = structlog.get_logger(__name__)

LANES = 2  # while the server works on one turn, Python prepares the other
STALE = 1.0  # seconds after which a job claimed ahead and not yet begun goes back for others to take
LAST_WORDS = 5.0  # seconds that cancelled handlers have to clean up


class Why(Enum):
    """The reason for which a handler is interrupted."""

    RELEASE = auto()
    LOST = auto()
    CANCEL = auto()


@dataclass(slots=True, eq=False)
class Slot:
    """One of the places where handlers run."""

    task: "asyncio.Task[None] | None" = None
    job: Taken | None = None
    why: Why | None = None
    idle: "asyncio.Future[None] | None" = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the shift keeps to."""

    concurrency: int
    poll_interval: timedelta
    lease: timedelta
    shutdown_timeout: timedelta


class Shift:
    """Everything between taking out a lease and ending it."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        runner: Runner,
        kinds: Mapping[str, int | None],
        limits: Limits,
    ) -> None:
        self.worker_id: UUID = uuid4()
        self._database = database
        self._signals = signals
        self._runner = runner
        self._kinds = kinds
        self._limits = limits
        self._stock = Stock(kinds, limits.concurrency)
        self._floors = Floors()
        self._slots = [Slot() for _ in range(limits.concurrency)]
        self._idle: list[Slot] = []
        self._backlog: deque[Taken] = deque()
        self._backlog_since = 0.0
        self._finished: list[tuple[int, int]] = []
        self._put_back: list[PutBack] = []
        self._resent: set[int] = set()
        self._claims: Counter[int] = Counter()  # every claim sent, with the number of jobs not yet given up
        self._news = asyncio.Event()
        self._settled = asyncio.Event()
        self._is_open = True
        self._looking = True
        self._plenty = False
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        # A dead worker's jobs must be back within the lease, and the rescue itself comes round only now and then.
        self._rescue_every = limits.lease / 20
        self._lease = Lease(database, self.worker_id, length=limits.lease - self._rescue_every, on_lost=self._lost.set)

    async def work(self, stop: asyncio.Event) -> None:
        """Work until told to stop (then finish in order) or until the lease is lost (then drop everything)."""
        self._loop = asyncio.get_running_loop()
        self._pool = await self._database.pool()
        await self._lease.begin()
        self._lease.keep()
        tasks: list[asyncio.Task[None]] = []
        try:
            for slot in self._slots:
                slot.task = asyncio.create_task(self._slot(slot), name="job slot")
            lanes = [self._lane() for _ in range(LANES)]
            helpers = [*lanes, self._listen(), self._rescue(), self._cancel()]
            tasks = [asyncio.create_task(helper, name=helper.__name__) for helper in helpers]
            await self._until(stop, tasks)
            if self._lost.is_set():
                metrics.LEASES_LOST.inc()
                await self._interrupt_all(Why.LOST)
            else:
                await self._drain()
        finally:
            self._is_open = False
            await _end([*tasks, *(slot.task for slot in self._slots if slot.task is not None)])
            with contextlib.suppress(*DATABASE_TROUBLE):
                if await self._lease.end():
                    self._signals.changed([TOPIC])

    async def work_once(self) -> int:
        """Take what is due now, run it, hand it in; return how many ran. For tests and for tools."""
        self._loop = asyncio.get_running_loop()
        self._pool = await self._database.pool()
        await self._lease.begin()
        connection = await self._connect()
        try:
            ask = Ask(*self._stock.ask(), {})
            self._stock.reserve(ask)
            taken = await self._turn(connection, ask, [], [])
            self._backlog.clear()
            for job, result in zip(taken, await asyncio.gather(*map(self._runner.run, taken)), strict=True):
                self._settle(job, result)
            await self._turn(connection, NOTHING, self._finished, self._put_back)
            return len(taken)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            connection.terminate()
            await self._lease.end()

    async def _until(self, stop: asyncio.Event, tasks: "list[asyncio.Task[None]]") -> None:
        """Wait for the word to stop, the loss of the lease, or a bug in one of our own tasks."""
        slots = [slot.task for slot in self._slots if slot.task is not None]
        ends = [asyncio.create_task(event.wait()) for event in (stop, self._lost)]
        try:
            done, _ = await asyncio.wait([*ends, *tasks, *slots], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _end(ends)

    async def _slot(self, slot: Slot) -> None:
        while True:
            if not self._backlog:
                slot.idle = self._loop.create_future()
                self._idle.append(slot)
                await slot.idle
                continue
            job = self._backlog.popleft()
            slot.job = job
            started = time.perf_counter()
            result = await self._run(slot, job)
            self._stock.ran(time.perf_counter() - started)
            slot.job = slot.why = None
            self._settle(job, result)

    async def _run(self, slot: Slot, job: Taken) -> Result:
        run = self._runner.run
        while True:
            try:
                return await run(job)
            except asyncio.CancelledError:
                why, slot.why = slot.why, None
                if why is None or slot.task is None:
                    raise
                slot.task.uncancel()
                match why:
                    case Why.RELEASE:
                        return release(job)
                    case Why.LOST:
                        return ENDED
                    case Why.CANCEL:
                        run = self._runner.cancelled

    def _settle(self, job: Taken, result: Result) -> None:
        """Note what is to be written. One lane or the other takes it along with its next turn."""
        self._stock.gave(job)
        if isinstance(result, Finished):
            self._finished.append((job.id, job.claim))
        elif isinstance(result, PutBack):
            self._put_back.append(result)
            if result.after is not None and result.after < self._limits.poll_interval:
                self._look_in(result.after.total_seconds())
        else:
            self._give_up_claim(job.claim)
        if self._plenty:
            self._looking = True
        self._news.set()
        self._settled.set()

    def _give_up_claim(self, claim: int) -> None:
        self._claims[claim] -= 1
        if self._claims[claim] <= 0:
            del self._claims[claim]

    async def _lane(self) -> None:
        connection: asyncpg.Connection[asyncpg.Record] | None = None
        try:
            while True:
                ask = self._ask()
                if not (ask.limit or self._finished or self._put_back):
                    await self._news.wait()
                    self._news.clear()
                    continue
                finished, self._finished = self._finished, []
                put_back, self._put_back = self._put_back, []
                self._in_flight += 1
                self._stock.reserve(ask)
                try:
                    if connection is None:
                        connection = await self._connect()
                    await self._turn(connection, ask, finished, put_back)
                except DATABASE_TROUBLE as error:
                    log.warning("worker.turn_failed", error=type(error).__name__)
                    self._keep_for_later(ask, finished, put_back)
                    if connection is not None:
                        connection.terminate()
                    connection = None
                    await asyncio.sleep(random.uniform(0.1, 0.5))
                finally:
                    self._in_flight -= 1
                    self._settled.set()
        finally:
            if connection is not None:
                connection.terminate()

    def _ask(self) -> Ask:
        """What to take now. An idle worker looks with one lane only: two would ask the same question."""
        if not (self._is_open and self._looking) or (self._in_flight and not self._plenty):
            return NOTHING
        limit, at_most = self._stock.ask()
        if not limit:
            return NOTHING
        self._looking = self._plenty
        return Ask(limit, at_most, self._floors.choose(time.monotonic()))

    async def _turn(
        self,
        connection: "asyncpg.Connection[asyncpg.Record]",
        ask: Ask,
        finished: list[tuple[int, int]],
        put_back: list[PutBack],
    ) -> list[Taken]:
        claim = random.getrandbits(63)
        self._claims[claim] += 1  # before it is sent: whatever becomes of it, it is known
        sent = time.monotonic()
        try:
            turn = await take_turn(
                connection, worker_id=self.worker_id, claim=claim, finished=finished, put_back=put_back, ask=ask
            )
        except BaseException:
            del self._claims[claim]  # what it may have claimed is forgotten, and given back as such
            raise
        self._claims[claim] += len(turn.taken)
        self._give_up_claim(claim)
        for _, given_up in finished:
            self._give_up_claim(given_up)
        for job in put_back:
            self._give_up_claim(job.claim)
        if turn.late:
            self._count_late(turn.late, finished, put_back)
        if ask.limit:
            self._took(ask, turn.taken, turn.next_in, sent)
        return turn.taken

    def _took(self, ask: Ask, taken: list[Taken], next_in: float | None, sent: float) -> None:
        now = time.monotonic()
        self._stock.answered(ask, taken)
        self._floors.saw(ask, taken, sent=sent, now=now)
        self._plenty = len(taken) == ask.limit
        if self._plenty:
            self._looking = True
        elif ask.floors:
            self._look_in(self._floors.whole_from - now)
        elif next_in is not None and next_in < self._limits.poll_interval.total_seconds():
            self._look_in(next_in)
        if not self._backlog:
            self._backlog_since = now
        self._backlog.extend(taken)
        for _ in range(min(len(taken), len(self._idle))):
            idle = self._idle.pop().idle
            if idle is not None and not idle.done():
                idle.set_result(None)

    def _keep_for_later(self, ask: Ask, finished: list[tuple[int, int]], put_back: list[PutBack]) -> None:
        """The turn may or may not have happened. Handing in twice is harmless; what was taken is found by _rescue."""
        self._stock.answered(ask, [])
        self._floors.forget()
        self._looking = True
        self._finished = finished + self._finished
        self._put_back = put_back + self._put_back
        self._resent.update(job_id for job_id, _ in finished)
        self._resent.update(job.job_id for job in put_back)

    def _count_late(self, late: int, finished: list[tuple[int, int]], put_back: list[PutBack]) -> None:
        ids = {job_id for job_id, _ in finished} | {job.job_id for job in put_back}
        known = ids & self._resent
        self._resent -= known
        if late > len(known):
            metrics.LATE.inc(late - len(known))
            log.warning("worker.late", jobs=late - len(known))

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        settings = {"application_name": "pilotlight worker", "timezone": "UTC", **PLANNER}
        return await self._database.connect(
            server_settings=settings, command_timeout=self._limits.lease.total_seconds() / 2
        )

    def _look(self) -> None:
        self._looking = True
        self._news.set()

    def _look_in(self, seconds: float) -> None:
        """Look again after that time, unless a look is already due before."""
        at = self._loop.time() + max(seconds, 0.0)
        if self._timer is not None and not self._timer.cancelled() and self._loop.time() < self._timer.when() <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    async def _listen(self) -> None:
        """Woken by whoever enqueues; by the clock if nobody wakes us."""
        bell = self._signals.wakeup(TOPIC)
        try:
            while True:
                await bell.wait(self._limits.poll_interval)
                self._look()
                self._give_back_stale()
        finally:
            self._signals.forget(TOPIC, bell)

    def _give_back_stale(self) -> None:
        if not self._backlog or self._idle or time.monotonic() - self._backlog_since < STALE:
            return
        stale = list(self._backlog)
        self._backlog.clear()
        for job in stale:
            self._settle(job, release(job))
        self._signals.changed([TOPIC])

    async def _rescue(self) -> None:
        while True:
            await asyncio.sleep(self._rescue_every.total_seconds() * random.uniform(0.7, 1.0))
            try:
                rescued = await rescue(self._pool)
                forgotten = await give_back_forgotten(self._pool, self.worker_id, list(self._claims))
            except DATABASE_TROUBLE as error:
                log.warning("worker.rescue_failed", error=type(error).__name__)
                continue
            if rescued or forgotten:
                metrics.RESCUED.inc(len(rescued))
                log.warning("worker.rescued", jobs=len(rescued), forgotten=len(forgotten))
                self._floors.forget()
                self._look()
                self._signals.changed([TOPIC])

    async def _cancel(self) -> None:
        bell = self._signals.wakeup(CANCEL_TOPIC)
        try:
            while True:
                await bell.wait(self._limits.lease / 4)
                try:
                    await self._cancel_running()
                    await self._cancel_waiting()
                except DATABASE_TROUBLE as error:
                    log.warning("worker.cancel_failed", error=type(error).__name__)
        finally:
            self._signals.forget(CANCEL_TOPIC, bell)

    async def _cancel_running(self) -> None:
        cancelled = await cancelled_here(self._pool, self.worker_id)
        for slot in self._slots:
            if slot.job is not None and (slot.job.id, slot.job.claim) in cancelled and not slot.job.cancel_requested:
                slot.job.cancel_requested = True  # once is enough: a second interruption would hit its ending
                self._interrupt(slot, Why.CANCEL)
        for job in self._backlog:
            job.cancel_requested = job.cancel_requested or (job.id, job.claim) in cancelled

    async def _cancel_waiting(self) -> None:
        claim = random.getrandbits(63)
        self._claims[claim] += 1
        try:
            taken = await claim_cancelled(self._pool, self.worker_id, claim, list(self._kinds))
            self._claims[claim] += len(taken)
        finally:
            self._give_up_claim(claim)
        self._stock.answered(NOTHING, taken)
        for job in taken:
            self._settle(job, await self._runner.cancelled(job))

    def _interrupt(self, slot: Slot, why: Why) -> None:
        if slot.job is not None and slot.task is not None:
            slot.why = why
            slot.task.cancel()

    async def _interrupt_all(self, why: Why) -> None:
        self._is_open = False
        self._backlog.clear()
        for slot in self._slots:
            self._interrupt(slot, why)
        await self._wait_for_slots(LAST_WORDS)

    async def _drain(self) -> None:
        """No new claims; let handlers finish in their time, give back the rest, and hand everything in."""
        self._is_open = False
        for job in self._backlog:
            self._settle(job, release(job))
        self._backlog.clear()
        await self._wait_for_slots(self._limits.shutdown_timeout.total_seconds())
        await self._interrupt_all(Why.RELEASE)
        await self._wait_until(lambda: not (self._finished or self._put_back or self._in_flight), LAST_WORDS)
        self._signals.changed([TOPIC])

    async def _wait_for_slots(self, seconds: float) -> None:
        await self._wait_until(lambda: all(slot.job is None for slot in self._slots), seconds)

    async def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._settled.clear()
                    await self._settled.wait()


async def _end(tasks: "list[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=LAST_WORDS)
