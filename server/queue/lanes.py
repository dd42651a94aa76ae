"""The worker's conversation with the job table: when to look for work, and handing in what is over."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from server.db.engine import Database
from server.db.trouble import DATABASE_TROUBLE
from server.queue import metrics
from server.queue.run import Finished, Result
from server.queue.stock import Floors, Stock
from server.queue.turn import NOTHING, PLANNER, Ask, PutBack, Taken, Turn, take_turn

log = structlog.get_logger(__name__)


class Lanes:
    """Each lane is one connection that takes one turn after the other.

    Two of them: while the server works on one turn, Python prepares the next. `on_taken` gets the claimed jobs.
    """

    def __init__(
        self,
        database: Database,
        worker_id: UUID,
        stock: Stock,
        *,
        poll_interval: timedelta,
        command_timeout: timedelta,
        on_taken: Callable[[Sequence[Taken]], None],
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._stock = stock
        self._poll_seconds = poll_interval.total_seconds()
        self._command_timeout = command_timeout.total_seconds()
        self._on_taken = on_taken
        self._floors = Floors()
        self._finished: list[tuple[int, int]] = []
        self._put_back: list[PutBack] = []
        self._resent: set[int] = set()
        self._claims: Counter[int] = Counter()  # every claim from before it is sent, with its jobs not yet given up
        self._news = asyncio.Event()
        self._handed_in = asyncio.Event()
        self._is_open = True
        self._looking = True  # there may be something to claim
        self._plenty = False  # the last claim was filled, so there is more
        self._full: set[str] = set()  # kinds of which as many were taken as could be, so there may be more
        self._in_flight = 0
        self.may_have_forgotten = False  # a turn's answer was lost, and with it what it claimed
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def known_claims(self) -> Container[int]:
        return self._claims

    def add_claim(self, claim: int, jobs: int) -> None:
        """Know of jobs that were claimed without a turn."""
        self._claims[claim] += jobs

    def look(self) -> None:
        """There may be something to claim now."""
        self._looking = True
        self._news.set()

    def look_in(self, seconds: float) -> None:
        """Look after that time, unless a look is due before."""
        now = time.monotonic()
        at = now + max(seconds, 0.0)
        if now < self._timer_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(at - now, self.look)

    def look_everywhere(self) -> None:
        """Jobs were given back: they may stand below the floors."""
        self._floors.forget()
        self.look()

    def settle(self, job: Taken, result: Result) -> None:
        """Note what is to be written; a lane takes it along with its next turn."""
        if job.kind in self._full:
            self._looking = True
        if isinstance(result, Finished):
            self._finished.append((job.id, job.claim))
        elif isinstance(result, PutBack):
            self._put_back.append(result)
            if result.after is not None and result.after.total_seconds() < self._poll_seconds:
                self.look_in(result.after.total_seconds())
        else:
            self.give_up(job.claim)
        self._news.set()

    def give_up(self, claim: int) -> None:
        """One job fewer is held under this claim."""
        self._claims[claim] -= 1
        if self._claims[claim] <= 0:
            del self._claims[claim]

    def close(self) -> None:
        """Claim nothing any more."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()

    async def until_handed_in(self, seconds: float) -> None:
        """Wait until everything settled is written, but not longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._finished or self._put_back or self._in_flight:
                    self._handed_in.clear()
                    await self._handed_in.wait()

    async def run(self) -> None:
        """One lane."""
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
                    await self._take_turn(connection, ask, finished, put_back)
                except DATABASE_TROUBLE as error:
                    log.warning("worker.turn_failed", error=type(error).__name__)
                    self._keep_for_later(ask, finished, put_back)
                    if connection is not None:
                        connection.terminate()
                    connection = None
                    await asyncio.sleep(random.uniform(0.1, 0.5))
                finally:
                    self._in_flight -= 1
                    self._handed_in.set()
        finally:
            if connection is not None:
                connection.terminate()

    async def run_once(self, work: Callable[[], Awaitable[None]]) -> None:
        """One turn to take, one to hand in, and in between whatever `work` does with what was taken."""
        connection = await self._connect()
        try:
            ask = self._ask()
            self._stock.reserve(ask)
            await self._take_turn(connection, ask, [], [])
            await work()
            await self._take_turn(connection, NOTHING, self._finished, self._put_back)
        finally:
            self.close()
            connection.terminate()

    def _ask(self) -> Ask:
        """What to take now. An idle worker looks with one lane only: two would ask the same question."""
        if not (self._is_open and self._looking) or (self._in_flight and not self._plenty):
            return NOTHING
        limit, at_most = self._stock.ask()
        if not limit:
            return NOTHING
        self._full.update(self._stock.kinds - at_most.keys())
        self._looking = self._plenty
        return Ask(limit, at_most, self._floors.choose(time.monotonic()))

    async def _take_turn(
        self,
        connection: "asyncpg.Connection[asyncpg.Record]",
        ask: Ask,
        finished: list[tuple[int, int]],
        put_back: list[PutBack],
    ) -> None:
        claim = random.getrandbits(63)
        self._claims[claim] += 1  # before it is sent: whatever becomes of it, it is known
        sent = time.monotonic()
        try:
            turn = await take_turn(
                connection, worker_id=self._worker_id, claim=claim, finished=finished, put_back=put_back, ask=ask
            )
        except BaseException:
            del self._claims[claim]  # what it may have claimed is nobody's now, and is found and given back as such
            raise
        self._claims[claim] += len(turn.taken)
        self.give_up(claim)
        for _, given_up in finished:
            self.give_up(given_up)
        for job in put_back:
            self.give_up(job.claim)
        if self._resent or turn.late:
            self._count_late(turn.late, finished, put_back)
        if ask.limit:
            self._took(ask, turn, sent)

    def _took(self, ask: Ask, turn: Turn, sent: float) -> None:
        now = time.monotonic()
        self._stock.answered(ask, turn.taken)
        self._floors.saw(ask, turn.taken, sent=sent, now=now)
        self._plenty = len(turn.taken) == ask.limit
        taken = Counter(job.kind for job in turn.taken)
        for kind, at_most in ask.at_most.items():
            (self._full.discard if taken[kind] < at_most else self._full.add)(kind)
        if self._plenty:
            self._looking = True
        elif ask.floors:
            self.look_in(self._floors.whole_from - now)
        elif turn.next_in is not None and turn.next_in < self._poll_seconds:
            self.look_in(turn.next_in)
        self._on_taken(turn.taken)

    def _keep_for_later(self, ask: Ask, finished: list[tuple[int, int]], put_back: list[PutBack]) -> None:
        """The turn may or may not have happened. Handing in twice is harmless; what it took is found as forgotten."""
        self._stock.answered(ask, [])
        self.may_have_forgotten = True
        self._floors.forget()
        self._looking = True
        self._finished = finished + self._finished
        self._put_back = put_back + self._put_back
        self._resent.update(job_id for job_id, _ in finished)
        self._resent.update(job.job_id for job in put_back)

    def _count_late(self, late: int, finished: list[tuple[int, int]], put_back: list[PutBack]) -> None:
        """Refused writes are news, except of those that may have been handed in before."""
        known = self._resent & ({job_id for job_id, _ in finished} | {job.job_id for job in put_back})
        self._resent -= known
        if late > len(known):
            metrics.LATE.add(by=late - len(known))
            log.warning("worker.late", jobs=late - len(known))

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        settings = {"application_name": "pilotlight worker", "timezone": "UTC", **PLANNER}
        return await self._database.connect(server_settings=settings, command_timeout=self._command_timeout)
