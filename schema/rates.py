"""How often each token may ask: a bucket per token that fills up again by the clock."""

import time
from collections import OrderedDict
from uuid import UUID

MOST_TOKENS = 10_000
CHECKING = 10  # what it counts to have a document checked that is not known: that is as much work as ten requests
COST_OF_ONE = 1_000  # a request that may cost more counts once more for each of these


class Rates:
    """Of one process. A full minute's worth may come at once; after that it is an even pace."""

    def __init__(self, a_minute: int) -> None:
        """0 turns it off."""
        self._most = float(a_minute)
        self._a_second = a_minute / 60
        self._buckets: OrderedDict[UUID, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def take(self, token_id: UUID) -> int | None:
        """None when there was something left; else the milliseconds until there is."""
        if not self._most:
            return None
        moment = time.monotonic()
        left = self._left(token_id, moment)
        self._buckets[token_id] = (left - 1 if left >= 1 else left, moment)
        if len(self._buckets) > MOST_TOKENS:
            self._buckets.popitem(last=False)  # whoever was silent for longest, and so has the fullest bucket
        return None if left >= 1 else max(1, round((1 - left) / self._a_second * 1000))

    def charge(self, token_id: UUID, count: int) -> None:
        """For work that was more than one request's. It is done all the same; the next ones have to wait for it."""
        if self._most and count:
            moment = time.monotonic()
            self._buckets[token_id] = (max(self._left(token_id, moment) - count, -self._most), moment)

    def _left(self, token_id: UUID, moment: float) -> float:
        left, since = self._buckets.pop(token_id, (self._most, moment))
        return min(self._most, left + (moment - since) * self._a_second)
