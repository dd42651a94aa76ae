"""Waking each other up across processes, without ever being what correctness depends on.

Every reader polls as well: a lost signal costs one poll interval, never a job or an event.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from uuid import uuid4

import asyncpg
import structlog

from server.db.engine import Database
from server.db.trouble import DATABASE_TROUBLE

log = structlog.get_logger(__name__)

CHANNEL = "pilotlight"
PING_EVERY = timedelta(seconds=5)
RECONNECT_AFTER = timedelta(seconds=1)
SEND_PAUSE = timedelta(milliseconds=2)  # commits within it share one NOTIFY; measured: costs nothing, saves thousands


class Wakeup:
    """One waiter's bell. It stays rung until it is heard, so nothing is missed between two waits."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    def heard(self) -> bool:
        """Whether it was rung since the last time, for somebody who does not wait."""
        was_rung = self._rung.is_set()
        self._rung.clear()
        return was_rung

    async def wait(self, timeout: timedelta) -> bool:
        """Sleep until rung or until the time is over; True if rung."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Signals:
    """One per process: sends what this process changed, hears what the others did, on one connection.

    The connection must be a direct one: a pooler in transaction mode drops LISTEN without a word. A ping to
    ourselves shows whether we still hear; if not, the connection is replaced.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._me = uuid4().hex[:12]
        self._wakeups: dict[str, list[Wakeup]] = defaultdict(list)
        self._outgoing: set[str] = set()
        self._something_to_send = asyncio.Event()
        self._heard_ping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_hearing = False
        database.on_commit = self.changed

    def wakeup(self, topic: str) -> Wakeup:
        """A bell for one waiter; give it back with `forget`."""
        bell = Wakeup()
        self._wakeups[topic].append(bell)
        return bell

    def forget(self, topic: str, bell: Wakeup) -> None:
        with contextlib.suppress(ValueError):
            self._wakeups[topic].remove(bell)

    def changed(self, topics: Iterable[str]) -> None:
        """Wake this process's waiters now and the others' soon. Never blocks, never fails."""
        for topic in topics:
            self._ring(topic)
            self._outgoing.add(topic)
        self._something_to_send.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="signals")

    async def stop(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    def _ring(self, topic: str) -> None:
        for bell in self._wakeups.get(topic, ()):
            bell.ring()

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_one_connection()
            except DATABASE_TROUBLE as error:
                log.warning("signals.lost", error=type(error).__name__)
            self.is_hearing = False
            await asyncio.sleep(RECONNECT_AFTER.total_seconds())

    async def _serve_one_connection(self) -> None:
        connection = await self._database.connect(command_timeout=5)
        try:
            connection.add_termination_listener(self._cut_off)
            await connection.add_listener(CHANNEL, self._heard)
            self.is_hearing = True
            for topic in list(self._wakeups):
                self._ring(topic)  # whatever was said while nobody listened
            await self._send(connection)
        finally:
            self.is_hearing = False
            connection.terminate()

    async def _send(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        while True:
            try:
                async with asyncio.timeout(PING_EVERY.total_seconds()):
                    await self._something_to_send.wait()
            except TimeoutError:
                await self._ping(connection)
                await self._database.look_around()
                continue
            if connection.is_closed():
                raise ConnectionError("the server ended the connection")
            self._something_to_send.clear()
            topics, self._outgoing = self._outgoing, set()
            try:
                # One message for all topics of the batch: a NOTIFY-only transaction does not wait for a flush.
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{self._me} {' '.join(sorted(topics))}")
            except BaseException:
                self._outgoing |= topics
                self._something_to_send.set()
                raise
            await asyncio.sleep(SEND_PAUSE.total_seconds())

    async def _ping(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._heard_ping.clear()
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{self._me} ping")
        try:
            async with asyncio.timeout(PING_EVERY.total_seconds()):
                await self._heard_ping.wait()
        except TimeoutError:
            raise ConnectionError("deaf: our own ping did not come back") from None

    def _cut_off(self, _connection: object) -> None:
        """Known at once: until the next ping we would be deaf and think otherwise."""
        self.is_hearing = False
        self._something_to_send.set()

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split(" ")
        if sender == self._me:
            if "ping" in topics:
                self._heard_ping.set()
            return  # our own waiters were woken when we changed it
        for topic in topics:
            self._ring(topic)
