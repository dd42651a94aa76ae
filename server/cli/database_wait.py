"""Waits at start for a database that is away; meanwhile the process says that it is alive and not ready."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

from server.cli.console import report_progress
from server.config import Settings
from server.errors import DatabaseAway
from server.http.serve_health import serve_starting

RETRY_EVERY = timedelta(seconds=1)
SAY_EVERY = timedelta(seconds=10)


async def wait_for_database(
    settings: Settings, check: Callable[[], Awaitable[None]], stop: asyncio.Event, listener: socket.socket | None
) -> bool:
    """Repeat the check while it raises DatabaseAway, at most for DATABASE_START_TIMEOUT. False if a signal came."""
    started = time.monotonic()
    say_at = started
    async with AsyncExitStack() as stack:
        while not stop.is_set():
            try:
                await check()
            except DatabaseAway as problem:
                waited = time.monotonic() - started
                if waited >= settings.database_start_timeout.total_seconds():
                    raise
                if listener is not None:
                    await stack.enter_async_context(serve_starting(settings, listener))
                    listener = None
                if time.monotonic() >= say_at:
                    say_at = time.monotonic() + SAY_EVERY.total_seconds()
                    report_progress(
                        "database.waiting",
                        f"Waiting for the database: {problem}",
                        reason=str(problem),
                        seconds=int(waited),
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_EVERY.total_seconds()):
                        await stop.wait()
            else:
                return True
    return False
