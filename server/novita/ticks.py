"""Time as the client needs it: a clock that only goes forward, and waiting; tests hold both still."""

import asyncio
import time
from typing import Protocol


class Ticks(Protocol):
    def now(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class RealTicks:
    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
