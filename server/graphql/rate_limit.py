"""Request rate limit: a token bucket per API token."""

import time
from collections import OrderedDict
from uuid import UUID

from server.batching import TokenBucket

TOKENS_MAX = 10_000
VALIDATION_COST = 10  # requests; validating a document that is not cached is as much work
COST_PER_REQUEST = 1_000  # of query cost; a more expensive query counts as several requests


class RateLimiter:
    """Per process. A full minute's worth may come at once; after that the rate is even."""

    def __init__(self, per_minute: int) -> None:
        """0 turns it off."""
        self._most = float(per_minute)
        self._per_second = per_minute / 60
        self._buckets: OrderedDict[UUID, TokenBucket] = OrderedDict()

    def take(self, token_id: UUID) -> int | None:
        """None if the request is allowed, else the milliseconds to wait."""
        if not self._most:
            return None
        moment = time.monotonic()
        bucket = self._bucket(token_id, moment)
        if len(self._buckets) > TOKENS_MAX:
            self._buckets.popitem(last=False)  # unused for the longest time, so it has the fullest bucket
        return None if bucket.take(moment) else max(1, round(bucket.wait(moment) * 1000))

    def charge(self, token_id: UUID, count: int) -> None:
        """Count work beyond that of one request. It is done all the same; the next requests wait for it."""
        if self._most and count:
            moment = time.monotonic()
            self._bucket(token_id, moment).charge(count, moment, debt_max=self._most)

    def _bucket(self, token_id: UUID, moment: float) -> TokenBucket:
        bucket = self._buckets.get(token_id)
        if bucket is None:
            bucket = self._buckets[token_id] = TokenBucket(self._per_second, self._most, moment)
        self._buckets.move_to_end(token_id)
        return bucket
