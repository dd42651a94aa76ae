"""Fetches jobs for the executor and writes the results, on two connections."""

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

from server.db.database import Database
from server.db.outages import DATABASE_ERRORS
from server.queue import metrics
from server.queue.demand import Demand, ScanFloors
from server.queue.exchange import NO_CLAIM, PLANNER, ClaimedJob, ClaimRequest, ExchangeResult, Reschedule, exchange
from server.queue.runner import Finished, Result

log = structlog.get_logger(__name__)


class Producer:
    """Each connection sends one exchange statement after the other.

    With two connections, Python prepares one exchange while the server executes the other. `on_claimed` gets the
    claimed jobs; `on_lost_claim` is called when the response to a claim, and so perhaps its jobs, was lost.
    """

    def __init__(
        self,
        database: Database,
        worker_id: UUID,
        demand: Demand,
        *,
        poll_interval: timedelta,
        command_timeout: timedelta,
        on_claimed: Callable[[Sequence[ClaimedJob]], None],
        on_lost_claim: Callable[[], None],
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._demand = demand
        self._poll_seconds = poll_interval.total_seconds()
        self._command_timeout = command_timeout.total_seconds()
        self._on_claimed = on_claimed
        self.on_lost_claim = on_lost_claim
        self._floors = ScanFloors()
        self._finished: list[tuple[int, int]] = []
        self._rescheduled: list[Reschedule] = []
        self._resent: set[int] = set()
        self._claims: Counter[int] = Counter()  # every claim, counted from before it is sent, with its jobs still held
        self._wakeup = asyncio.Event()
        self._written = asyncio.Event()
        self._is_open = True
        self._fetch_due = True  # there may be something to claim
        self._has_more = False  # the last claim was filled, so there is more
        self._full_kinds: set[str] = set()  # kinds claimed up to their limit, so there may be more
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def known_claims(self) -> Container[int]:
        return self._claims

    def track_claim(self, claim: int, jobs: int) -> None:
        """Count jobs that were claimed by another statement than the exchange."""
        self._claims[claim] += jobs

    def fetch(self) -> None:
        """Fetch as soon as possible: there may be something to claim."""
        self._fetch_due = True
        self._wakeup.set()

    def fetch_in(self, seconds: float) -> None:
        """Fetch after that time, unless a fetch is due before."""
        now = time.monotonic()
        at = now + max(seconds, 0.0)
        if now < self._timer_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(at - now, self.fetch)

    def fetch_with_full_scan(self) -> None:
        """For jobs that were released: they may be below the floors."""
        self._floors.reset()
        self.fetch()

    def add_result(self, job: ClaimedJob, result: Result) -> None:
        """Write this result with the next exchange."""
        if job.kind in self._full_kinds:
            self._fetch_due = True
        if isinstance(result, Finished):
            self._finished.append((job.id, job.claim))
        elif isinstance(result, Reschedule):
            self._rescheduled.append(result)
            if result.after is not None and result.after.total_seconds() < self._poll_seconds:
                self.fetch_in(result.after.total_seconds())
        else:
            self.release_claim(job.claim)
        self._wakeup.set()

    def release_claim(self, claim: int) -> None:
        """One job fewer is held under this claim."""
        self._claims[claim] -= 1
        if self._claims[claim] <= 0:
            del self._claims[claim]

    def close(self) -> None:
        """Claim no more jobs; results are still written."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()

    async def wait_until_written(self, seconds: float) -> None:
        """Wait until all results are written, or for that many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._finished or self._rescheduled or self._in_flight:
                    self._written.clear()
                    await self._written.wait()

    async def run(self) -> None:
        """Use one connection; called once per connection."""
        connection: asyncpg.Connection[asyncpg.Record] | None = None
        try:
            while True:
                request = self._next_request()
                if not (request.limit or self._finished or self._rescheduled):
                    await self._wakeup.wait()
                    self._wakeup.clear()
                    continue
                finished, self._finished = self._finished, []
                rescheduled, self._rescheduled = self._rescheduled, []
                self._in_flight += 1
                self._demand.reserve(request)
                try:
                    if connection is None:
                        connection = await self._connect()
                    await self._exchange(connection, request, finished, rescheduled)
                except DATABASE_ERRORS as error:
                    log.warning("worker.turn_failed", error=type(error).__name__)
                    self._requeue(request, finished, rescheduled)
                    if connection is not None:
                        connection.terminate()
                    connection = None
                    await asyncio.sleep(random.uniform(0.1, 0.5))
                finally:
                    self._in_flight -= 1
                    self._written.set()
        finally:
            if connection is not None:
                connection.terminate()

    async def run_once(self, work: Callable[[], Awaitable[None]]) -> None:
        """One exchange to claim jobs, then `work`, then one exchange to write the results."""
        connection = await self._connect()
        try:
            request = self._next_request()
            self._demand.reserve(request)
            await self._exchange(connection, request, [], [])
            await work()
            await self._exchange(connection, NO_CLAIM, self._finished, self._rescheduled)
        finally:
            self.close()
            connection.terminate()

    def _next_request(self) -> ClaimRequest:
        """What to claim now. An idle worker polls on one connection only: two would send the same query."""
        if not (self._is_open and self._fetch_due) or (self._in_flight and not self._has_more):
            return NO_CLAIM
        limit, at_most = self._demand.room()
        if not limit:
            return NO_CLAIM
        self._full_kinds.update(self._demand.kinds - at_most.keys())
        self._fetch_due = self._has_more
        return ClaimRequest(limit, at_most, self._floors.choose(time.monotonic()))

    async def _exchange(
        self,
        connection: "asyncpg.Connection[asyncpg.Record]",
        request: ClaimRequest,
        finished: list[tuple[int, int]],
        rescheduled: list[Reschedule],
    ) -> None:
        claim = random.getrandbits(63)
        self._claims[claim] += 1  # before it is sent, so that release_unknown_claims never takes it for a lost one
        sent = time.monotonic()
        try:
            result = await exchange(
                connection,
                worker_id=self._worker_id,
                claim=claim,
                finished=finished,
                rescheduled=rescheduled,
                request=request,
            )
        except BaseException:
            del self._claims[claim]  # the jobs it may have claimed are found and released as unknown claims
            raise
        self._claims[claim] += len(result.claimed)
        self.release_claim(claim)
        for _, held_claim in finished:
            self.release_claim(held_claim)
        for job in rescheduled:
            self.release_claim(job.claim)
        if self._resent or result.late:
            self._count_late(result.late, finished, rescheduled)
        if request.limit:
            self._after_claim(request, result, sent)

    def _after_claim(self, request: ClaimRequest, result: ExchangeResult, sent: float) -> None:
        now = time.monotonic()
        self._demand.confirm(request, result.claimed)
        self._floors.record_scan(request, result.claimed, sent=sent, now=now)
        self._has_more = len(result.claimed) == request.limit
        counts = Counter(job.kind for job in result.claimed)
        for kind, at_most in request.at_most.items():
            (self._full_kinds.discard if counts[kind] < at_most else self._full_kinds.add)(kind)
        if self._has_more:
            self._fetch_due = True
        elif request.floors:
            self.fetch_in(self._floors.full_scan_from - now)
        elif result.next_in is not None and result.next_in < 3 * self._poll_seconds:  # before the look after the next
            self.fetch_in(result.next_in)
        self._on_claimed(result.claimed)

    def _requeue(self, request: ClaimRequest, finished: list[tuple[int, int]], rescheduled: list[Reschedule]) -> None:
        """The exchange may have been committed. Writing a result twice is harmless; lost claims are searched for."""
        self._demand.confirm(request, [])
        self.on_lost_claim()
        self._floors.reset()
        self._fetch_due = True
        self._finished = finished + self._finished
        self._rescheduled = rescheduled + self._rescheduled
        self._resent.update(job_id for job_id, _ in finished)
        self._resent.update(job.job_id for job in rescheduled)

    def _count_late(self, late: int, finished: list[tuple[int, int]], rescheduled: list[Reschedule]) -> None:
        """Report refused writes, except of results that may have been written before."""
        known = self._resent & ({job_id for job_id, _ in finished} | {job.job_id for job in rescheduled})
        self._resent -= known
        if late > len(known):
            metrics.LATE_WRITES.add(by=late - len(known))
            log.warning("worker.late", jobs=late - len(known))

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        settings = {"application_name": "pilotlight worker", **PLANNER}
        return await self._database.connect(server_settings=settings, command_timeout=self._command_timeout)
