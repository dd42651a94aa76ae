"""The one polling loop with a deadline that all tests use."""

import asyncio
import time
from collections.abc import Awaitable, Callable

WITHIN = 30.0  # seconds; reached only on a failure or on a very busy machine


async def until(condition: Callable[[], object], *, within: float = WITHIN, pause: float = 0.01) -> None:
    """Poll `condition`, which may be a coroutine function, until it is true; fail after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        result = condition()
        if await result if isinstance(result, Awaitable) else result:
            return
        assert time.monotonic() < deadline, f"it did not happen within {within:g} s"
        await asyncio.sleep(pause)
