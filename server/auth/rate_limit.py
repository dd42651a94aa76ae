"""A rate limit per token and per project: another token of the same project does not double what it may do."""

import asyncio
from uuid import UUID

from server.auth.caller import Caller
from server.batching import KeyedBuckets

# A client that does not wait although it was refused is made to: each of its refusals costs as much as a small request.
REFUSALS_PER_MINUTE = 600
REFUSALS_AT_ONCE = 50
REFUSAL_DELAY = 0.25  # seconds


class RateLimiter:
    """Per process. `burst` is the part of a minute's worth that may come at once; after that the rate is even."""

    def __init__(self, *, per_token: int, per_project: int, burst: float = 1.0) -> None:
        """Both a minute; 0 turns one off."""
        self._tokens = KeyedBuckets[UUID](per_token, burst=per_token * burst)
        self._projects = KeyedBuckets[UUID](per_project, burst=per_project * burst)
        self._refusals = KeyedBuckets[UUID](REFUSALS_PER_MINUTE, burst=REFUSALS_AT_ONCE)

    def take(self, caller: Caller) -> int | None:
        """None if the request is allowed, else the milliseconds to wait."""
        wait = self._tokens.take(caller.token_id)
        if wait is None:
            wait = self._projects.take(caller.project_id)
            if wait is None:
                return None
            self._tokens.give_back(caller.token_id)
        return max(1, round(wait * 1000))

    async def delay_refusal(self, caller: Caller) -> None:
        """Wait before a refusal is answered, if the project has had many lately."""
        if self._refusals.take(caller.project_id) is not None:
            await asyncio.sleep(REFUSAL_DELAY)

    def give_back(self, caller: Caller) -> None:
        """Return what `take` took: the request was not made."""
        self._tokens.give_back(caller.token_id)
        self._projects.give_back(caller.project_id)

    def charge(self, caller: Caller, count: int) -> None:
        """Count work beyond that of one request. It is done all the same; the next requests wait for it."""
        self._tokens.charge(caller.token_id, count)
        self._projects.charge(caller.project_id, count)
