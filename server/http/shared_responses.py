"""Responses that cost queries and are given to strangers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.responses import Response

from server.batching import GroupCommit, TokenBucket

# Load balancers and Prometheus ask every few seconds; a person or a test may ask a few times at once.
PER_SECOND, AT_ONCE = 10, 20
REQUESTS_MAX = 100_000


class SharedResponse:
    """All requests that arrive while a response is being made share the next one, so a flood of them costs few queries.

    Nothing is kept: each response is begun after the request that it is for.
    """

    def __init__(self, make: Callable[[], Awaitable[Response]]) -> None:
        self._make = make
        self._pace = TokenBucket(PER_SECOND, AT_ONCE, time.monotonic())
        self._requests = GroupCommit[None, Response](self._make_for, largest=REQUESTS_MAX)

    async def get(self) -> Response:
        return await self._requests.add(None)

    async def _make_for(self, requests: Sequence[None]) -> list[Response]:
        moment = time.monotonic()
        if not self._pace.take(moment):
            await asyncio.sleep(self._pace.wait(moment))
            self._pace.take(time.monotonic())
        return [await self._make()] * len(requests)
