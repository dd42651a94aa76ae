"""A worker session: everything that lives as long as one lease."""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog

from server.db.database import Database
from server.db.notify import Look, Notifier, Wakeup
from server.db.outages import DATABASE_ERRORS
from server.queue import metrics
from server.queue.control import CANCEL_TOPIC, IS_ANY_CANCELLED, cancelled_here, claim_cancelled
from server.queue.demand import OWN_SLOTS, Demand
from server.queue.enqueue import TOPIC
from server.queue.exchange import ClaimedJob, Reschedule, look_for_jobs
from server.queue.executor import Executor, Interruption
from server.queue.kinds import LINED, JobClass, class_of
from server.queue.lease import Lease
from server.queue.line_producer import JobTurns, LineProducer
from server.queue.producer import Producer
from server.queue.rescuer import ANY_LEASE_EXPIRED, LeaseWatch, release_unknown_claims, rescue, shorten_waits
from server.queue.runner import Result, Runner, release

log = structlog.get_logger(__name__)

CONNECTIONS = 2
BACKLOG_SECONDS_MAX = 1.0  # a prefetched job that has not started after this time is released for other workers
LEASES = "job-lease"
SEARCH_TIME_SHARE = 50  # a search through all jobs may take one part in so many of the time
CLEANUP_TIMEOUT = 5.0  # seconds for cancelled handlers to clean up, and for the last results to be written


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    concurrency: int
    poll_interval: timedelta
    lease: timedelta
    shutdown_timeout: timedelta


class WorkerSession:
    """The executor, the producer and the lease that makes the claimed jobs ours."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        runner: Runner,
        kinds: Mapping[str, int | None],
        limits: WorkerLimits,
        turns: JobTurns,
    ) -> None:
        self.worker_id: UUID = uuid4()
        self.is_working = False
        self._database = database
        self._notifier = notifier
        self._runner = runner
        self._kinds = kinds
        self._limits = limits
        lines = _lines(kinds)
        lined = {kind for in_line in lines.values() for kind in in_line}
        others = {kind: limit for kind, limit in kinds.items() if kind not in lined}
        self._demand = Demand(others, limits.concurrency, lines=lines.keys())
        own_slots = OWN_SLOTS[JobClass.WATCHING] if lines else 0
        self._executor = Executor(
            runner, limits.concurrency + own_slots, self._add_result, is_lease_held=lambda: self._lease.is_held
        )
        # Its own tasks: a claimed job of a line starts at once, however many others were fetched ahead.
        slots = limits.concurrency + sum(OWN_SLOTS[job_class] for job_class in lines) if lines else 0
        self._line_executor = Executor(runner, slots, self._add_result, is_lease_held=lambda: self._lease.is_held)
        self._producer = Producer(
            database,
            self.worker_id,
            self._demand,
            poll_interval=limits.poll_interval,
            command_timeout=limits.lease / 2,
            on_claimed=lambda jobs: self._begin(self._executor, jobs),
            on_lost_claim=self._claim_lost,
        )
        self._lines = LineProducer(
            database,
            self.worker_id,
            self._demand,
            turns,
            self._producer,
            lines,
            poll_interval=limits.poll_interval,
            command_timeout=limits.lease / 2,
            on_claimed=lambda jobs: self._begin(self._line_executor, jobs),
        )
        self._may_have_lost_claims = False
        self._checks = Wakeup()
        self._lost = asyncio.Event()
        self._is_closed = False
        # A dead worker's jobs must be claimable within the lease, and expired leases are only looked for this often.
        self._rescue_interval = limits.lease / 20
        self._lease = Lease(
            database, self.worker_id, length=limits.lease - self._rescue_interval, on_lost=self._lost.set
        )

    async def work(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set (then finish in order) or until the lease is lost (then drop everything)."""
        await self._runner.seals.load()  # once; before any job is logged
        await self._lease.begin()
        self._lease.start_renewing()
        tasks: list[asyncio.Task[None]] = []
        self.is_working = True
        try:
            tasks += self._executor.start() + self._line_executor.start()
            for name, run in (("listen", self._listen), ("rescue", self._rescue), ("cancel", self._cancel)):
                tasks.append(asyncio.create_task(run(), name=f"worker {name}"))
            tasks += [asyncio.create_task(self._producer.run(), name="worker producer") for _ in range(CONNECTIONS)]
            tasks += [asyncio.create_task(self._lines.run(line), name=f"worker {line}") for line in self._lines.kinds]
            await self._wait_for_end(stop, tasks)
            if self._lost.is_set():
                await self._drop()
            else:
                await self._drain()
        finally:
            self.is_working = False
            self._close()
            await _cancel_all(tasks)
            await self._lines.disconnect()
            with contextlib.suppress(*DATABASE_ERRORS):
                if await self._lease.end():
                    self._notifier.notify([TOPIC])

    async def work_once(self) -> int:
        """Claim what is due now, run it and write the results; return the number of jobs."""
        await self._runner.seals.load()  # once; before any job is logged
        await self._lease.begin()
        jobs: list[ClaimedJob] = []

        async def run_all() -> None:
            await self._lines.claim_once()
            jobs.extend(self._executor.take_backlog() + self._line_executor.take_backlog())
            for job, result in zip(jobs, await asyncio.gather(*map(self._runner.run, jobs)), strict=True):
                self._add_result(job, result, 0.0)

        try:
            await self._producer.run_once(run_all)
        finally:
            await self._lines.disconnect()
            await self._lease.end()
        return len(jobs)

    async def _wait_for_end(self, stop: asyncio.Event, tasks: "Sequence[asyncio.Task[None]]") -> None:
        """Wait for `stop`, for the loss of the lease, or for a bug in one of our own tasks."""
        ends = [asyncio.create_task(event.wait()) for event in (stop, self._lost)]
        try:
            done, _ = await asyncio.wait([*ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _cancel_all(ends)

    def _add_result(self, job: ClaimedJob, result: Result, seconds: float) -> None:
        if job.turn is not None:
            job.turn.give_back()
        self._demand.release(job)
        self._producer.add_result(job, result)
        self._lines.slot_freed()
        if not self._demand.is_lined(job):
            self._demand.record_run(seconds)
        elif isinstance(result, Reschedule) and result.after is not None:
            self._lines.wake_in(class_of(job.kind).job_class, result.after.total_seconds())

    def _begin(self, executor: Executor, jobs: Sequence[ClaimedJob]) -> None:
        """A claim that was sent before the worker stopped may succeed after it."""
        if self._is_closed:
            self._release(jobs)
        else:
            executor.add(jobs)
            if executor.has_backlog:
                self._checks.prompt()

    def _claim_lost(self) -> None:
        self._may_have_lost_claims = True
        self._checks.prompt()

    def _release(self, jobs: Sequence[ClaimedJob]) -> None:
        for job in jobs:
            if job.turn is not None:
                job.turn.give_back()
            self._demand.release(job)
            self._producer.add_result(job, release(job))

    async def _drain(self) -> None:
        """Claim no more; give handlers the shutdown timeout, release the rest, and write all results."""
        self._close()
        self._release(self._executor.take_backlog() + self._line_executor.take_backlog())
        await self._wait_until_idle(self._limits.shutdown_timeout.total_seconds())
        self._interrupt_all(Interruption.RELEASE)
        await self._wait_until_idle(CLEANUP_TIMEOUT)
        await self._producer.wait_until_written(CLEANUP_TIMEOUT)
        self._notifier.notify([TOPIC])

    async def _drop(self) -> None:
        """The lease is nearly over: stop everything before another worker may start the same jobs."""
        metrics.LEASES_LOST.add()
        self._close()
        self._executor.take_backlog()
        self._line_executor.take_backlog()
        self._interrupt_all(Interruption.LOST)
        await self._wait_until_idle(CLEANUP_TIMEOUT)

    def _close(self) -> None:
        self._is_closed = True
        self._producer.close()
        self._lines.close()

    def _interrupt_all(self, interruption: Interruption) -> None:
        self._executor.interrupt_all(interruption)
        self._line_executor.interrupt_all(interruption)

    async def _wait_until_idle(self, seconds: float) -> None:
        await asyncio.gather(self._executor.wait_until_idle(seconds), self._line_executor.wait_until_idle(seconds))

    async def _listen(self) -> None:
        """Fetch when notified of new jobs, or when the notifier finds one."""
        interval = self._limits.poll_interval
        wakeup = self._notifier.subscribe(TOPIC, look_for_jobs(self._kinds, every=interval))
        try:
            while True:
                await wakeup.wait(self._notifier.poll_interval(interval))
                self._producer.fetch()
                self._lines.wake()
        finally:
            self._notifier.unsubscribe(TOPIC, wakeup)

    async def _rescue(self) -> None:
        """Check for expired leases often, and search through all jobs for orphans and wrong times now and then."""
        look = Look(ANY_LEASE_EXPIRED, self._rescue_interval.total_seconds())
        self._checks = self._notifier.subscribe(LEASES, look)
        try:
            await self._check_leases_and_jobs()
        finally:
            self._notifier.unsubscribe(LEASES, self._checks)

    async def _check_leases_and_jobs(self) -> None:
        pool, watch = self._database.raw, self._database.shared(LeaseWatch)
        search_at = 0.0
        while True:
            pause = self._rescue_interval.total_seconds() * random.uniform(0.7, 1.0)
            is_quiet = not (self._executor.has_backlog or self._may_have_lost_claims)
            if is_quiet and self._notifier.is_listening:  # a look finds expired leases
                pause = max(pause, search_at - time.monotonic())
            await self._checks.wait(timedelta(seconds=pause))
            started = time.monotonic()
            must_search = started >= search_at
            stale = self._executor.take_backlog(older_than=BACKLOG_SECONDS_MAX)
            if stale:
                self._demand.reset_pace()
                self._release(stale)
            rescued: list[int] = []
            forgotten: list[int] = []
            shortened: list[int] = []
            try:
                if must_search:
                    shortened = await shorten_waits(pool)
                if must_search or await watch.look_for_expired(pool, interval=self._rescue_interval.total_seconds()):
                    rescued = await rescue(pool)
                if must_search or self._may_have_lost_claims:
                    self._may_have_lost_claims = False
                    forgotten = await release_unknown_claims(pool, self.worker_id, self._producer.known_claims)
            except DATABASE_ERRORS as error:
                log.warning("worker.rescue_failed", error=type(error).__name__)
                continue
            if must_search:
                took = time.monotonic() - started
                search_at = started + max(self._limits.lease.total_seconds() / 4, took * SEARCH_TIME_SHARE)
            if rescued or forgotten:
                metrics.RESCUED.add(by=len(rescued))
                log.warning("worker.rescued", jobs=len(rescued), forgotten=len(forgotten))
            if shortened:
                log.warning("worker.clock_jumped", jobs=len(shortened))
            if rescued or forgotten or stale or shortened:
                self._producer.fetch_with_full_scan()
                self._lines.wake()
                self._notifier.notify([TOPIC])

    async def _cancel(self) -> None:
        """End the jobs for which a cancellation was requested."""
        interval = self._limits.lease / 4
        wakeup = self._notifier.subscribe(CANCEL_TOPIC, Look(IS_ANY_CANCELLED, interval.total_seconds()))
        try:
            pool = self._database.raw
            while True:
                try:
                    cancelled = await cancelled_here(pool, self.worker_id)
                    self._executor.cancel(cancelled)
                    self._line_executor.cancel(cancelled)
                    claim = random.getrandbits(63)
                    self._producer.track_claim(claim, 1)
                    try:
                        waiting = await claim_cancelled(pool, self.worker_id, claim, list(self._kinds))
                        self._producer.track_claim(claim, len(waiting))
                    finally:
                        self._producer.release_claim(claim)
                    self._demand.confirm_cancelled(waiting)
                    for job in waiting:
                        self._add_result(job, await self._runner.end_cancelled(job), 0.0)
                except DATABASE_ERRORS as error:
                    log.warning("worker.cancel_failed", error=type(error).__name__)
                await wakeup.wait(self._limits.lease if self._notifier.is_listening else interval)
        finally:
            self._notifier.unsubscribe(CANCEL_TOPIC, wakeup)


def _lines(kinds: Iterable[str]) -> dict[JobClass, list[str]]:
    """The kinds of each lined class."""
    lines: dict[JobClass, list[str]] = {}
    for kind in kinds:
        job_class = class_of(kind).job_class
        if job_class in LINED:
            lines.setdefault(job_class, []).append(kind)
    return lines


async def _cancel_all(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLEANUP_TIMEOUT)
