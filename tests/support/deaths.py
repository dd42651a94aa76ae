"""A worker that dies once at each place of its way: after each commit, and before and after each call of the provider.

A place is the line of each function of a job that is running there, so the same call from another line is another one.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.novita.transport.request import ApiCall
from tests.support.lifecycle import rescue
from tests.support.world import World

JOBS = "/server/jobs/"
# What was in the air has arrived, or never will.
AGE_CALLS = "UPDATE operation SET asked_at = asked_at - interval '1 hour' WHERE finished_at IS NULL"


@dataclass
class Deaths:
    """Where it has died so far."""

    world: World
    places: list[str] = field(default_factory=list[str])

    def here(self, what: str) -> None:
        lines: list[str] = []
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            _, is_job, name = frame.f_code.co_filename.partition(JOBS)
            lines += [f"{name}:{frame.f_lineno}"] if is_job else []
            frame = frame.f_back
        place = f"{what} {' < '.join(lines)}"
        if lines and place not in self.places:
            self.places.append(place)
            raise asyncio.CancelledError(place)

    @contextmanager
    def _armed(self) -> Generator[None]:
        database, http = self.world.database, self.world.novita._http  # pyright: ignore[reportPrivateUsage]
        write, send = database.write, http.send

        @asynccontextmanager
        async def dying_write() -> AsyncGenerator[AsyncSession]:
            async with write() as session:
                yield session
            self.here("after the commit")

        async def dying_send(call: ApiCall, **options: Any) -> Any:
            self.here(f"before {call.method} {call.path}")
            answer = await send(call, **options)
            self.here(f"after {call.method} {call.path}")
            return answer

        database.__dict__["write"], http.__dict__["send"] = dying_write, dying_send
        try:
            yield
        finally:
            del database.__dict__["write"], http.__dict__["send"]

    async def work_until(self, is_so: Callable[[], Awaitable[object]], *, runs: int = 500) -> None:
        """Work until something is true, with another worker after each death; time passes as in `World.work_until`."""
        for _ in range(runs):
            if await is_so():
                return
            await self.world.hurry()
            try:
                with self._armed():
                    await self.world.work_once()
            except asyncio.CancelledError:
                await rescue(self.world)
                await self.world.age_attempts()
                await self.world.execute(AGE_CALLS)
        raise AssertionError(f"not so after {runs} runs and {len(self.places)} deaths")
