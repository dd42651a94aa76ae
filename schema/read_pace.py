"""How often subscriptions read what they poll: a token may have thousands of them, each equal to no other."""

import asyncio
import time
from uuid import UUID

from server.batching import TokenBucket

# A dashboard reads a few times a second, however many people look at it: equal subscriptions share their reads.
PER_SECOND, AT_ONCE = 20, 40
PROJECTS_MAX = 10_000


class ReadPace:
    """One per process. What a project reads beyond its pace waits, in the order in which it came."""

    def __init__(self) -> None:
        self._projects: dict[UUID, tuple[asyncio.Lock, TokenBucket]] = {}

    async def take(self, project_id: UUID) -> None:
        """Wait until the project may read once more."""
        if project_id not in self._projects:
            if len(self._projects) >= PROJECTS_MAX:
                self._projects = {id: each for id, each in self._projects.items() if each[0].locked()}
            self._projects[project_id] = asyncio.Lock(), TokenBucket(PER_SECOND, AT_ONCE, time.monotonic())
        line, bucket = self._projects[project_id]
        async with line:
            moment = time.monotonic()
            if not bucket.take(moment):
                await asyncio.sleep(bucket.wait(moment))
                bucket.take(time.monotonic())
