"""When to try again, and after how long."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from server.errors import NovitaError, ProviderError, ProviderTimeout, ProviderUnreachable, RateLimited
from server.novita.call import Call
from server.novita.http import ClientClosed, TooLarge


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `attempts` in all, none of them begun later than `deadline` after the call was asked for."""

    attempts: int = 5
    first_wait: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(minutes=2)
    random: Callable[[], float] = random.random

    def wait(self, call: Call, error: NovitaError, *, attempt: int, elapsed: float) -> float | None:
        """Seconds until the next attempt; None to give up.

        Full jitter: a wait is anything between nothing and the doubled time, so callers that failed together come
        back apart. A provider that names a time gets it, and the jitter of the first wait on top. If that is past the
        deadline we give up at once: whoever called learns the time from the error and can use it better than waiting.
        """
        if attempt >= self.attempts or not call.is_repeatable or not _may_pass(error):
            return None
        first, longest = self.first_wait.total_seconds(), self.longest_wait.total_seconds()
        asked = error.retry_after if isinstance(error, RateLimited) else None
        if asked is not None:
            seconds = asked.total_seconds() + self.random() * first
        else:
            seconds = self.random() * min(longest, first * 2 ** min(attempt - 1, 32))
        return seconds if elapsed + seconds < self.deadline.total_seconds() else None


def _may_pass(error: NovitaError) -> bool:
    """Not the same as `retryable`: no stock may be tried again later, but by somebody who can choose another region."""
    if isinstance(error, ProviderError):
        # A 5xx, or a success that nobody can read; a redirect or a huge answer would only come again.
        return not isinstance(error, TooLarge) and (error.status is None or not 300 <= error.status < 500)
    return isinstance(error, RateLimited | ProviderTimeout | ProviderUnreachable) and not isinstance(
        error, ClientClosed
    )
