"""Limits how often an address may present a token that turns out to be wrong."""

import time
from collections import OrderedDict

from server.batching import TokenBucket
from server.errors import PilotlightError

ADDRESSES_MAX = 10_000


class TooManyWrongTokens(PilotlightError):
    """The token was not looked up; wait before the next one."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__("Too many wrong tokens from this address.")
        self.wait_ms = wait_ms


class WrongTokens:
    """A bucket per address. Each look-up takes one from it, and a right token gives it back."""

    def __init__(self, per_minute: int) -> None:
        """0 turns it off."""
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, address: str) -> None:
        """Raises TooManyWrongTokens."""
        if not self._per_minute:
            return
        moment = time.monotonic()
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = TokenBucket(self._per_minute / 60, self._per_minute, moment)
            if len(self._buckets) > ADDRESSES_MAX:
                self._buckets.popitem(last=False)  # unused for the longest time, so it has the fullest bucket
        self._buckets.move_to_end(address)
        if not bucket.take(moment):
            raise TooManyWrongTokens(max(1, round(bucket.wait(moment) * 1000)))

    def give_back(self, address: str) -> None:
        bucket = self._buckets.get(address)
        if bucket is not None:
            bucket.give_back(time.monotonic())
