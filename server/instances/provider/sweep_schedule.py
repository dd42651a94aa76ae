"""When the poller reads the provider's list: as often as its part of the rate limit allows, sooner where that pays."""

import asyncio
import contextlib
import time

INTERVAL_MIN = 1.0
# The part of the rate limit that sweeps use. A sweep of many pages that would take longer than INTERVAL_MAX uses up to
# RATE_SHARE_MAX, which leaves the rest for changes.
RATE_SHARE = 0.06
RATE_SHARE_MAX = 0.5
INTERVAL_MAX = 11.0
# Between two sweeps while calls are left over, or while a machine is expected whose user waits for it.
SHORT_INTERVAL = 2.5
SLACK = 3.0  # a sweep that comes so soon anyway is not moved


class SweepSchedule:
    """`limit` is that of the provider, in calls a second. All times are in seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._began_at = 0.0
        self._next_at = 0.0
        self._sooner = asyncio.Event()
        self.is_urgent = False  # the next one: a user waits for an end that it will show
        self.calls = 1  # of the last sweep: machines that move are usually on the first page

    @property
    def left(self) -> float:
        """Until the next one; 0 or less if it is due."""
        return self._next_at - time.monotonic()

    def begin(self, *, calls: int, has_spare: bool) -> None:
        """One begins now; `has_spare`: nothing else waits for the calls of the next."""
        self._began_at, self.is_urgent = time.monotonic(), False
        longest = SHORT_INTERVAL if has_spare else INTERVAL_MAX
        usual = max(INTERVAL_MIN, min(calls / (RATE_SHARE * self._limit), longest))
        self._next_at = self._began_at + max(usual, self._least(calls))

    def ask_for(self, moment: float) -> None:
        """Sweep at that time by the monotonic clock, unless the next one comes about then."""
        moment = max(moment, self._began_at + self._shortest(self.calls))
        if moment + SLACK < self._next_at:
            self._next_at = moment
            self._sooner.set()

    def ask_now(self) -> None:
        """Sweep at once, in the place of a call that would show one machine."""
        self._next_at, self.is_urgent = time.monotonic(), True
        self._sooner.set()

    async def wait(self) -> None:
        """Until the next one is due."""
        while (left := self.left) > 0:
            self._sooner.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._sooner.wait()

    def _shortest(self, calls: int) -> float:
        return max(SHORT_INTERVAL, self._least(calls))

    def _least(self, calls: int) -> float:
        return calls / (RATE_SHARE_MAX * self._limit)
