"""One run of one job: from the claimed row to what becomes of it. Nothing that a job does can harm the worker."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog
from structlog.contextvars import bind_contextvars, clear_contextvars

from server.db.engine import Database
from server.db.trouble import is_database_gone
from server.errors import LostClaim, NovitaError
from server.observe import origin, traces
from server.observe.traces import Kind, span
from server.queue import metrics
from server.queue.backoff import Backoff
from server.queue.claim import Claim
from server.queue.ending import end
from server.queue.enqueue import HEAD_START
from server.queue.handler import Handler
from server.queue.kinds import Unreadable, Work, class_of, from_args
from server.queue.metrics import KindMetrics
from server.queue.outcome import (
    CANCELLED,
    INTERNAL_ERROR,
    UNREADABLE,
    WORKER_LOST,
    Again,
    Done,
    Failure,
    GiveUp,
    Outcome,
    storable,
)
from server.queue.turn import PutBack, Taken

log = structlog.get_logger(__name__)

# A job whose worker dies every time it runs would otherwise take down one worker after another for ever.
MOST_LOSSES = 20


@dataclass(frozen=True, slots=True)
class Finished:
    """Done; the row can go."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing left to write: the job was ended in its own transaction, or is somebody else's by now."""


FINISHED = Finished()
ENDED = Ended()
Result = Finished | Ended | PutBack


class Runner:
    """Runs claimed jobs with their handlers and turns whatever happens into a Result."""

    def __init__(
        self,
        database: Database,
        handlers: Mapping[str, Handler],
        *,
        max_attempts: int,
        backoff: Backoff,
        patience: timedelta,
    ) -> None:
        self._database = database
        self._handlers = handlers
        self._backoff = backoff
        self._patience = patience
        self._metrics = {kind: metrics.of(kind) for kind in handlers}
        self._limits = {kind: class_of(kind).max_attempts or max_attempts for kind in handlers}

    async def run(self, job: Taken) -> Result:
        """Run it to its end. Only cancellation gets out of here."""
        counts = self._metrics[job.kind]
        counts.pickup.observe(job.waited)
        clear_contextvars()
        bind_contextvars(job_id=job.id, kind=job.kind, instance_id=job.instance_id, project_id=job.project_id)
        place = None if job.origin is None else origin.resume(job.origin)
        counts.running += 1
        started = time.perf_counter()
        try:
            if traces.are_collected():
                return await self._run_traced(job, counts, place)
            return await self._run(job, counts)
        finally:
            counts.run_time.observe(time.perf_counter() - started)
            counts.running -= 1

    async def _run_traced(self, job: Taken, counts: KindMetrics, place: str | None) -> Result:
        with span(
            f"job {job.kind}",
            kind=Kind.CONSUMER,
            parent=place,
            job_id=job.id,
            instance_id=job.instance_id,
            attempt=job.attempts + 1,
            waited_ms=round(job.waited * 1000, 1),
        ) as running:
            result = await self._run(job, counts)
            running.note(outcome=type(result).__name__)
            return result

    async def cancelled(self, job: Taken) -> Result:
        """End a job that somebody cancelled; its handler is not running, or no longer."""
        work = None
        try:
            work = from_args(job.kind, job.args)
        except Unreadable as error:
            log.warning("job.unreadable", job_id=job.id, kind=job.kind, error=str(error))
        return await self._end(job, work, Failure(CANCELLED, "The job was cancelled.", False, job.attempts))

    async def _run(self, job: Taken, counts: KindMetrics) -> Result:
        if job.cancel_requested:
            return await self.cancelled(job)
        try:
            work = from_args(job.kind, job.args)
        except (Unreadable, ValueError) as error:
            log.error("job.unreadable", error=str(error))
            return await self._end(job, None, Failure(UNREADABLE, storable(str(error)), False, job.attempts))
        hopeless = self._hopeless(job)
        if hopeless is not None:
            return await self._end(job, work, hopeless)
        try:
            outcome = await self._handlers[job.kind].run(work, self._claim(job))
        except LostClaim:
            log.warning("job.late", attempt=job.attempts + 1)
            metrics.LATE.add()
            return ENDED
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is one failed attempt, logged whole
            return await self._failed(job, work, error, counts)
        return await self._settle(job, work, outcome, counts)

    async def _settle(self, job: Taken, work: Work, outcome: Outcome, counts: KindMetrics) -> Result:
        match outcome:
            case Done():
                counts.finished += 1
                return FINISHED
            case Again(after):
                counts.put_off += 1
                return _put_back(job, after=max(after, timedelta(0)), attempts=job.attempts)
            case GiveUp(code, message):
                return await self._end(job, work, Failure(code, storable(message), False, job.attempts + 1))

    async def _failed(self, job: Taken, work: Work, error: Exception, counts: KindMetrics) -> Result:
        attempts = job.attempts + 1
        if is_database_gone(error):
            log.warning("job.database_gone", attempt=attempts, error=type(error).__name__)
            return _put_back(job, after=self._backoff.after(4), attempts=job.attempts)
        if isinstance(error, NovitaError):
            failure = Failure(error.code, storable(error.message), error.retryable, attempts)
            log.warning("job.attempt_failed", attempt=attempts, code=failure.code, error=failure.message)
        else:
            # The message may hold anything, so what people are shown is only its type; the log has it whole.
            failure = Failure(INTERNAL_ERROR, f"{type(error).__name__} in {job.kind}", True, attempts)
            log.error("job.attempt_failed", attempt=attempts, exc_info=error)
        if not failure.retryable or attempts >= self._limits[job.kind]:
            return await self._end(job, work, failure)
        counts.attempts_failed += 1
        asked: timedelta | None = getattr(error, "retry_after", None)
        after = max(self._backoff.after(attempts), asked or timedelta(0))
        return _put_back(job, after=after, attempts=attempts, failure=failure)

    async def _end(self, job: Taken, work: Work | None, failure: Failure) -> Result:
        try:
            await end(self._claim(job), self._handlers.get(job.kind), work, failure)
        except LostClaim:
            metrics.LATE.add()
            return ENDED
        except Exception:
            # No database, or `failed` itself failed: the job must not be lost for that. With its attempts used up it
            # is not run again, only ended again: see _hopeless.
            log.exception("job.end_failed", code=failure.code)
            spent = job.attempts if failure.code == CANCELLED else max(failure.attempts, self._limits[job.kind])
            return _put_back(job, after=self._backoff.after(8), attempts=spent, failure=failure)
        counts = self._metrics[job.kind]
        if failure.code == CANCELLED:
            counts.cancelled += 1
        else:
            counts.failed += 1
        log.warning("job.ended", code=failure.code, error=failure.message, attempts=failure.attempts)
        return ENDED

    def _hopeless(self, job: Taken) -> Failure | None:
        if job.losses >= MOST_LOSSES:
            return Failure(WORKER_LOST, f"{job.losses} workers ended while they ran this job.", True, job.attempts)
        if job.attempts >= self._limits[job.kind]:
            return Failure(
                job.error_code or INTERNAL_ERROR, job.error_message or "No attempts are left.", True, job.attempts
            )
        return None

    def _claim(self, job: Taken) -> Claim:
        return Claim(
            self._database,
            job.id,
            job.kind,
            job.attempts + 1,
            job.project_id,
            job.instance_id,
            job.claim,
            self._patience,
        )


def release(job: Taken) -> PutBack:
    """Give a job back as it was: same place in the order, no attempt counted."""
    return PutBack(
        job.id, job.claim, None, timedelta(0), job.attempts, error_code=job.error_code, error_message=job.error_message
    )


def _put_back(job: Taken, *, after: timedelta, attempts: int, failure: Failure | None = None) -> PutBack:
    return PutBack(
        job.id,
        job.claim,
        after,
        HEAD_START[class_of(job.kind).priority],
        attempts,
        failure.code if failure else None,
        failure.message if failure else None,
    )
