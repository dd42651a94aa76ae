"""How late the event loop is: what blocks it blocks everybody, and nothing else shows it."""

import asyncio
from datetime import timedelta

from server.observe import metrics

EVERY = timedelta(milliseconds=500)


async def watch_the_loop() -> None:
    """Sleep again and again, and note how much later than asked each sleep ends."""
    loop = asyncio.get_running_loop()
    seconds = EVERY.total_seconds()
    while True:
        due = loop.time() + seconds
        await asyncio.sleep(seconds)
        metrics.LOOP_LAG.observe(max(0.0, loop.time() - due))
