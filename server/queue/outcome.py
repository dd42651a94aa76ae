"""What a handler answers, and what is told when there is no hope left. An exception means: failed, count it, later."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Done:
    """The work is done; the job leaves the table."""


@dataclass(frozen=True, slots=True)
class Again:
    """Not yet: run me again after this time. Waiting is not failing, so it costs no attempt."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It can't be done, and trying again will not help."""

    code: str
    message: str


Outcome = Done | Again | GiveUp


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job ended without being done. `attempts` counts the runs that failed, this one included."""

    code: str
    message: str
    retryable: bool
    attempts: int


CANCELLED = "CANCELLED"
WORKER_LOST = "WORKER_LOST"
UNREADABLE = "UNREADABLE_ARGUMENTS"
INTERNAL_ERROR = "INTERNAL_ERROR"


def storable(message: str, limit: int = 2000) -> str:
    """Text that PostgreSQL takes: one zero byte in a message would make its whole batch fail for ever."""
    return message[:limit].replace("\x00", "").encode("utf-8", "replace").decode()
