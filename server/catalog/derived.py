"""Values that are derived from cached lists: computing them again takes longer than the rest of a lookup."""

import time
from collections.abc import Hashable
from datetime import timedelta
from typing import Any

from server.cache.dated import REFRESH_AT, DatedCache

SECONDS = 5.0
SIZE_MAX = 500


class DerivedValues:
    """Values by key, for some seconds and until one of the caches changes.

    The time is short beside the TTL, so that the caches are still asked, and replace in time what gets old. With
    Redis other processes change the caches unseen, and nothing is kept.
    """

    def __init__(self, *caches: DatedCache[Any], ttl: timedelta) -> None:
        self._caches = caches
        self._seconds = min(SECONDS, ttl.total_seconds() * (1 - REFRESH_AT))
        self._values: dict[Hashable, Any] = {}
        self._version = 0
        self._until = float("-inf")

    @property
    def version(self) -> int:
        """Another one after each change of the caches."""
        return sum(each.changes for each in self._caches)

    def get(self, key: Hashable) -> Any | None:
        if time.monotonic() >= self._until or self._version != self.version:
            return None
        return self._values.get(key)

    def put(self, key: Hashable, value: Any, *, version: int) -> None:
        """`version`: the one before the caches were read."""
        if version != self.version or any(each.is_shared for each in self._caches):
            return
        moment = time.monotonic()
        if moment >= self._until or self._version != version or len(self._values) >= SIZE_MAX:
            self._values.clear()
            self._version, self._until = version, moment + self._seconds
        self._values[key] = value
