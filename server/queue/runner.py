"""Runs one claimed job with its handler and turns the outcome into a result to write."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog
from sqlalchemy import text
from structlog.contextvars import bind_contextvars, clear_contextvars

from server.db.database import Database
from server.db.outages import is_database_outage
from server.db.seals import Seals
from server.errors import LostClaim, NovitaError
from server.observe import job_origin, tracing
from server.observe.tracing import Kind, span
from server.queue import metrics
from server.queue.claim import Claim
from server.queue.enqueue import PRIORITY_DELAY
from server.queue.exchange import ClaimedJob, Reschedule
from server.queue.handler import (
    CANCELLED,
    INTERNAL_ERROR,
    UNREADABLE,
    WORKER_LOST,
    Again,
    Done,
    Failure,
    GiveUp,
    Handler,
    Outcome,
    storable,
)
from server.queue.kinds import UnreadableArguments, Work, class_of, from_args
from server.queue.metrics import KindMetrics

log = structlog.get_logger(__name__)

# A job whose worker dies on every run would otherwise kill one worker after another.
LOSSES_MAX = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `base` up to `limit`. The jitter spreads the retries of jobs that failed together."""

    base: timedelta = timedelta(milliseconds=100)
    limit: timedelta = timedelta(minutes=5)

    def after(self, attempts: int) -> timedelta:
        """The pause after that many failed attempts: half of it fixed, half of it random."""
        # 2 ** 30 times any base exceeds any limit, and larger powers would overflow.
        full = min(self.base * 2 ** min(max(attempts - 1, 0), 30), self.limit)
        return full * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Finished:
    """The handler returned Done; the next exchange completes the job."""


@dataclass(frozen=True, slots=True)
class AlreadyEnded:
    """Nothing left to write: the job was ended in its own transaction, or another worker has it."""


class _LoggedId:
    """A job's id for log lines. It is sealed when a line is written: most runs write none."""

    __slots__ = ("_number", "_seals")

    def __init__(self, seals: Seals, number: int) -> None:
        self._seals, self._number = seals, number

    def __repr__(self) -> str:
        return self._seals.job_id(self._number)


FINISHED = Finished()
ENDED = AlreadyEnded()
Result = Finished | AlreadyEnded | Reschedule


class Runner:
    """Runs claimed jobs. Every error of a handler becomes a Result."""

    def __init__(
        self,
        database: Database,
        handlers: Mapping[str, Handler],
        seals: Seals,
        *,
        max_attempts: int,
        backoff: Backoff,
        idle_timeout: timedelta,
    ) -> None:
        self._database = database
        self._handlers = handlers
        self.seals = seals
        self._backoff = backoff
        self._idle_timeout = idle_timeout
        self._metrics = {kind: metrics.JOBS.of(kind) for kind in handlers}
        self._limits = {kind: class_of(kind).max_attempts or max_attempts for kind in handlers}

    async def run(self, job: ClaimedJob) -> Result:
        """Run the handler once. Raises nothing but CancelledError."""
        counts = self._metrics[job.kind]
        counts.pickup.observe(job.waited)
        clear_contextvars()
        bind_contextvars(
            job_id=_LoggedId(self.seals, job.id),
            kind=job.kind,
            instance_id=job.instance_id,
            project_id=job.project_id,
        )
        trace_parent = None if job.origin is None else job_origin.resume_origin(job.origin)
        counts.running += 1
        started = time.perf_counter()
        try:
            if tracing.is_enabled():
                return await self._run_traced(job, counts, trace_parent)
            return await self._run(job, counts)
        finally:
            counts.run_time.observe(time.perf_counter() - started)
            counts.running -= 1

    async def _run_traced(self, job: ClaimedJob, counts: KindMetrics, trace_parent: str | None) -> Result:
        with span(
            f"job {job.kind}",
            kind=Kind.CONSUMER,
            parent=trace_parent,
            job_id=self.seals.job_id(job.id),
            instance_id=job.instance_id,
            attempt=job.attempts + 1,
            waited_ms=round(job.waited * 1000, 1),
        ) as running:
            result = await self._run(job, counts)
            running.note(outcome=type(result).__name__)
            return result

    async def end_cancelled(self, job: ClaimedJob) -> Result:
        """End a job whose cancellation was requested; its handler must not be running."""
        work = None
        try:
            work = from_args(job.kind, job.args)
        except UnreadableArguments as error:
            log.warning("job.unreadable", job_id=self.seals.job_id(job.id), kind=job.kind, error=str(error))
        return await self._end(job, work, Failure(CANCELLED, "The job was cancelled.", False, job.attempts))

    async def _run(self, job: ClaimedJob, counts: KindMetrics) -> Result:
        if job.cancel_requested:
            return await self.end_cancelled(job)
        try:
            work = from_args(job.kind, job.args)
        except UnreadableArguments as error:
            log.error("job.unreadable", error=str(error))
            return await self._end(job, None, Failure(UNREADABLE, storable(str(error)), False, job.attempts))
        exhausted = self._exhausted(job)
        if exhausted is not None:
            return await self._end(job, work, exhausted)
        try:
            outcome = await self._handlers[job.kind].run(work, self._claim(job))
        except LostClaim:
            log.warning("job.late", attempt=job.attempts + 1)
            metrics.LATE_WRITES.add()
            return ENDED
        except Exception as error:  # noqa: BLE001 - any exception of a handler is one failed attempt, and is logged
            return await self._failed(job, work, error, counts)
        return await self._settle(job, work, outcome, counts)

    async def _settle(self, job: ClaimedJob, work: Work, outcome: Outcome, counts: KindMetrics) -> Result:
        match outcome:
            case Done():
                counts.finished += 1
                return FINISHED
            case Again(after):
                counts.rescheduled += 1
                return _reschedule(job, after=max(after, timedelta(0)), attempts=job.attempts)
            case GiveUp(code, message):
                return await self._end(job, work, Failure(code, storable(message), False, job.attempts + 1))

    async def _failed(self, job: ClaimedJob, work: Work, error: Exception, counts: KindMetrics) -> Result:
        attempts = job.attempts + 1
        if is_database_outage(error):
            log.warning("job.database_gone", attempt=attempts, error=type(error).__name__)
            return _reschedule(job, after=self._backoff.after(4), attempts=job.attempts)
        if isinstance(error, NovitaError):
            failure = Failure(error.code, storable(error.message), error.retryable, attempts)
            log.warning("job.attempt_failed", attempt=attempts, code=failure.code, error=failure.message)
        else:
            # The message may contain secrets, so callers are shown only the type; the log has the traceback.
            failure = Failure(INTERNAL_ERROR, f"{type(error).__name__} in {job.kind}", True, attempts)
            log.error("job.attempt_failed", attempt=attempts, exc_info=error)
        if not failure.retryable or attempts >= self._limits[job.kind]:
            return await self._end(job, work, failure)
        counts.attempts_failed += 1
        retry_after: timedelta | None = getattr(error, "retry_after", None)
        after = max(self._backoff.after(attempts), retry_after or timedelta(0))
        return _reschedule(job, after=after, attempts=attempts, failure=failure)

    async def _end(self, job: ClaimedJob, work: Work | None, failure: Failure) -> Result:
        try:
            await end_job(self._claim(job), self._handlers.get(job.kind), work, failure)
        except LostClaim:
            metrics.LATE_WRITES.add()
            return ENDED
        except Exception:
            # No database, or `failed` itself failed: the job must not be lost. With its attempts used up it is not run
            # again, only ended again: see _exhausted.
            log.exception("job.end_failed", code=failure.code)
            spent = job.attempts if failure.code == CANCELLED else max(failure.attempts, self._limits[job.kind])
            return _reschedule(job, after=self._backoff.after(8), attempts=spent, failure=failure)
        counts = self._metrics[job.kind]
        if failure.code == CANCELLED:
            counts.cancelled += 1
        else:
            counts.failed += 1
        log.warning("job.ended", code=failure.code, error=failure.message, attempts=failure.attempts)
        return ENDED

    def _exhausted(self, job: ClaimedJob) -> Failure | None:
        if job.losses >= LOSSES_MAX:
            return Failure(WORKER_LOST, f"{job.losses} workers ended while they ran this job.", True, job.attempts)
        if job.attempts >= self._limits[job.kind]:
            return Failure(
                job.error_code or INTERNAL_ERROR, job.error_message or "No attempts are left.", True, job.attempts
            )
        return None

    def _claim(self, job: ClaimedJob) -> Claim:
        return Claim(
            self._database,
            job.id,
            job.kind,
            job.attempts + 1,
            job.project_id,
            job.instance_id,
            job.claim,
            self._idle_timeout,
            job.turn,
        )


def release(job: ClaimedJob) -> Reschedule:
    """Release a job unchanged: same place in the order, no attempt counted."""
    return Reschedule(
        job.id, job.claim, None, timedelta(0), job.attempts, error_code=job.error_code, error_message=job.error_message
    )


def _reschedule(job: ClaimedJob, *, after: timedelta, attempts: int, failure: Failure | None = None) -> Reschedule:
    return Reschedule(
        job.id,
        job.claim,
        after,
        PRIORITY_DELAY[class_of(job.kind).priority],
        attempts,
        failure.code if failure else None,
        failure.message if failure else None,
    )


END = text("""
    WITH ended AS (
        DELETE FROM job WHERE id = :job_id AND claim = :token
        RETURNING id, kind, args, priority, project_id, instance_id, unique_key, run_at, created_at, claimed_at
    )
    INSERT INTO job_history (id, kind, args, priority, project_id, instance_id, unique_key, run_at, created_at,
                             claimed_at, status, attempts, error_code, error_message, finished_at)
    SELECT ended.*, :status, :attempts, :code, :message, clock_timestamp() FROM ended
""")


async def end_job(claim: Claim, handler: Handler | None, work: Work | None, failure: Failure) -> None:
    """Move the job to the history as FAILED or CANCELLED. Raises LostClaim if another worker has it.

    `work` is None when its arguments are unreadable; `failed` is not called then.
    """
    async with claim.write() as session:
        if handler is not None and handler.failed is not None and work is not None:
            await handler.failed(session, work, failure)
        await session.execute(
            END,
            {
                "job_id": claim.job_id,
                "token": claim.token,
                "status": "CANCELLED" if failure.code == CANCELLED else "FAILED",
                "attempts": failure.attempts,
                "code": failure.code,
                "message": failure.message,
            },
        )
