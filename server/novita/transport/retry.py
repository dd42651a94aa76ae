"""Retry policy: which errors are retried, and after how long."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from server.errors import NovitaError, ProviderError, ProviderTimeout, ProviderUnreachable, RateLimited, WrongProvider
from server.novita.transport.http import ClientClosed, ResponseTooLarge
from server.novita.transport.request import ApiCall


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `attempts` in all, none of them later than `deadline` after the call was requested."""

    attempts: int = 5
    first_wait: timedelta = timedelta(seconds=1)
    max_wait: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(minutes=2)
    random: Callable[[], float] = random.random

    def next_wait(self, call: ApiCall, error: NovitaError, *, attempt: int, elapsed: float) -> float | None:
        """Seconds until the next attempt; None to give up.

        Full jitter: a wait is between 0 and the doubled time, so callers that failed together do not retry together.
        A Retry-After of the provider is respected, plus the jitter of the first wait. If that is past the deadline we
        give up at once: the error carries the time, and the caller can schedule better than wait here.
        """
        if attempt >= self.attempts or not call.is_repeatable or not _is_transient(error):
            return None
        first, longest = self.first_wait.total_seconds(), self.max_wait.total_seconds()
        retry_after = error.retry_after if isinstance(error, RateLimited) else None
        if retry_after is not None:
            seconds = retry_after.total_seconds() + self.random() * first
        else:
            seconds = self.random() * min(longest, first * 2 ** min(attempt - 1, 32))
        return seconds if elapsed + seconds < self.deadline.total_seconds() else None


def _is_transient(error: NovitaError) -> bool:
    """Narrower than `retryable`: after InsufficientResource the caller should retry with another region."""
    if isinstance(error, ProviderError):
        # A 5xx or an unreadable success; a redirect or a huge response would only repeat.
        return not isinstance(error, ResponseTooLarge) and (error.status is None or not 300 <= error.status < 500)
    return isinstance(error, RateLimited | ProviderTimeout | ProviderUnreachable) and not isinstance(
        error, ClientClosed | WrongProvider
    )


class TransportClock(Protocol):
    def now(self) -> float:
        """Monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class MonotonicClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
