"""Wakes up waiting tasks across processes with LISTEN and NOTIFY.

Nothing depends on it for correctness: every reader polls as well, so a lost notification costs one poll interval.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from uuid import uuid4

import asyncpg
import structlog

from server.db.database import Database, read_clock
from server.db.outages import DATABASE_ERRORS
from server.tasks import stop_task

log = structlog.get_logger(__name__)

CHANNEL = "pilotlight"
PING_EVERY = timedelta(seconds=5)
RECONNECT_AFTER = timedelta(seconds=1)
SEND_PAUSE = timedelta(milliseconds=2)  # commits within it share one NOTIFY: measured, saves thousands at no cost


class Wakeup:
    """An event for one waiter. It stays set until consumed, so nothing is missed between two waits."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    def consume(self) -> bool:
        """Clear it without waiting; returns whether it was set."""
        was_set = self._event.is_set()
        self._event.clear()
        return was_set

    async def wait(self, timeout: timedelta) -> bool:
        """Wait until it is set, then clear it; False on a timeout."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Notifier:
    """One per process: sends and receives notifications of changed topics on one connection.

    The connection must be direct: a pooler in transaction mode drops LISTEN silently. A ping to itself shows whether
    notifications still arrive; if not, the connection is replaced.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sender_id = uuid4().hex[:12]
        self._wakeups: dict[str, list[Wakeup]] = defaultdict(list)
        self._outgoing: set[str] = set()
        self._something_to_send = asyncio.Event()
        self._ping_received = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_listening = False
        database.on_commit = self.notify

    def subscribe(self, topic: str) -> Wakeup:
        """A wake-up for one waiter; end it with `unsubscribe`."""
        wakeup = Wakeup()
        self._wakeups[topic].append(wakeup)
        return wakeup

    def unsubscribe(self, topic: str, wakeup: Wakeup) -> None:
        with contextlib.suppress(ValueError):
            self._wakeups[topic].remove(wakeup)

    def notify(self, topics: Iterable[str]) -> None:
        """Wake this process's waiters now and those of other processes soon. Never blocks or fails."""
        for topic in topics:
            self._wake(topic)
            self._outgoing.add(topic)
        self._something_to_send.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="notifier")

    async def stop(self) -> None:
        if self._task is None:
            return
        await stop_task(self._task)
        self._task = None

    def _wake(self, topic: str) -> None:
        for wakeup in self._wakeups.get(topic, ()):
            wakeup.wake()

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_one_connection()
            except DATABASE_ERRORS as error:
                log.warning("signals.lost", error=type(error).__name__)
            self.is_listening = False
            await asyncio.sleep(RECONNECT_AFTER.total_seconds())

    async def _serve_one_connection(self) -> None:
        connection = await self._database.connect(command_timeout=5)
        try:
            connection.add_termination_listener(self._on_disconnect)
            await connection.add_listener(CHANNEL, self._on_notification)
            self.is_listening = True
            for topic in list(self._wakeups):
                self._wake(topic)  # notifications may have been missed
            await self._send(connection)
        finally:
            self.is_listening = False
            connection.terminate()

    async def _send(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        read_clock_at = 0.0
        while True:
            if time.monotonic() >= read_clock_at:
                await read_clock(connection)
                read_clock_at = time.monotonic() + PING_EVERY.total_seconds()
            try:
                async with asyncio.timeout(PING_EVERY.total_seconds()):
                    await self._something_to_send.wait()
            except TimeoutError:
                await self._ping(connection)
                await self._database.check_primary()
                continue
            if connection.is_closed():
                raise ConnectionError("the server ended the connection")
            self._something_to_send.clear()
            topics, self._outgoing = self._outgoing, set()
            try:
                # One message for all topics of the batch: a NOTIFY-only transaction does not wait for a flush.
                await connection.execute(
                    "SELECT pg_notify($1, $2)", CHANNEL, f"{self._sender_id} {' '.join(sorted(topics))}"
                )
            except BaseException:
                self._outgoing |= topics
                self._something_to_send.set()
                raise
            await asyncio.sleep(SEND_PAUSE.total_seconds())

    async def _ping(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._ping_received.clear()
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{self._sender_id} ping")
        try:
            async with asyncio.timeout(PING_EVERY.total_seconds()):
                await self._ping_received.wait()
        except TimeoutError:
            raise ConnectionError("our own ping did not arrive") from None

    def _on_disconnect(self, _connection: object) -> None:
        """Detects a closed connection at once instead of at the next ping."""
        self.is_listening = False
        self._something_to_send.set()

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split(" ")
        if sender == self._sender_id:
            if "ping" in topics:
                self._ping_received.set()
            return  # `notify` has woken this process's waiters already
        for topic in topics:
            self._wake(topic)
