"""How long a failed job waits before its next attempt."""

import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `base` up to `limit`. The jitter keeps jobs that failed together from coming back together."""

    base: timedelta = timedelta(milliseconds=100)
    limit: timedelta = timedelta(minutes=5)

    def after(self, attempts: int) -> timedelta:
        """The pause after that many failed attempts: half of it fixed, half of it by chance."""
        # 2 ** 30 times any base is over any limit, and larger powers would only overflow.
        full = min(self.base * 2 ** min(max(attempts - 1, 0), 30), self.limit)
        return full * random.uniform(0.5, 1.0)
