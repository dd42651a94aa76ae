"""Ends background tasks."""

import asyncio
from datetime import timedelta
from typing import Any

CANCEL_INTERVAL = timedelta(seconds=1)


async def stop_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended.

    Once may not be enough: a rollback on a connection that is already closed raises its own error in place of the
    CancelledError, and a loop that survives database errors would then go on for ever.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_INTERVAL.total_seconds())
