"""The handler of a job kind, and the outcomes it can return."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.queue.claim import Claim


@dataclass(frozen=True, slots=True)
class Done:
    """The work is done; the job leaves the table."""


@dataclass(frozen=True, slots=True)
class Again:
    """Run the job again after this time. Waiting is not failing: no attempt is counted."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job fails: a retry would not help."""

    code: str
    message: str


Outcome = Done | Again | GiveUp


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed or was cancelled. `attempts` counts the failed runs, this one included."""

    code: str
    message: str
    retryable: bool
    attempts: int


CANCELLED = "CANCELLED"
WORKER_LOST = "WORKER_LOST"
UNREADABLE = "UNREADABLE_ARGUMENTS"
INTERNAL_ERROR = "INTERNAL_ERROR"
# Any: each handler takes its own subclass of Work, and the table of handlers is keyed by kind.
HandlerFunction = Callable[[Any, Claim], Awaitable[Outcome]]
FailedCallback = Callable[[AsyncSession, Any, Failure], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Handler:
    """`run` may be called more than once for the same job, so it reads the current state before it acts.

    `failed` writes in the transaction that ends the job, e.g. ends the job's operation with it.
    """

    run: HandlerFunction
    failed: FailedCallback | None = None


def storable(message: str, limit: int = 2000) -> str:
    """Text that PostgreSQL accepts: a zero byte in one message would make its whole batch fail for ever."""
    return message[:limit].replace("\x00", "").encode("utf-8", "replace").decode()
