"""Wakes up waiting tasks across processes with LISTEN and NOTIFY.

Nothing depends on it for correctness: for all readers of the process, one small query a second looks whether a
notification was lost, and every reader polls as well.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any
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
QUIET_POLL = timedelta(seconds=5)  # of a reader for which the notifier looks
LOOK_TOGETHER = 0.25  # looks that are due within so many seconds share a query
LOOK_TIME_SHARE = 20  # a slow look may take one part in so many of the time
SEND_PAUSE = timedelta(milliseconds=2)  # commits within it share one NOTIFY: measured, saves thousands at no cost


@dataclass(frozen=True, slots=True)
class Look:
    """A question to the database, an SQL expression. Its reader is woken if the answer is true, or has changed."""

    question: str
    seconds: float = 1.0  # between two looks


class Wakeup:
    """An event for one waiter. It stays set until consumed, so nothing is missed between two waits."""

    def __init__(self, look: Look | None = None) -> None:
        self.look = look
        self.look_at = 0.0
        self._event = asyncio.Event()
        self._was_notified = False
        self._answer: object = None

    def wake(self) -> None:
        self._was_notified = True
        self._event.set()

    def prompt(self) -> None:
        """End the reader's wait, without a notification."""
        self._event.set()

    def take_answer(self, answer: object) -> None:
        before, self._answer = self._answer, answer
        if answer is True or (answer is not False and answer != before):
            self.prompt()

    def consume(self) -> bool:
        """Clear it without waiting; returns whether it was set."""
        was_set = self._event.is_set()
        self._event.clear()
        self._was_notified = False
        return was_set

    async def wait(self, timeout: timedelta) -> bool:
        """Wait until it is set, then clear it; False on a timeout, or if only a look has woken it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout.total_seconds()):
                await self._event.wait()
        was_notified = self._was_notified
        self.consume()
        return was_notified


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

    def subscribe(self, topic: str, look: Look | None = None) -> Wakeup:
        """A wake-up for one waiter; end it with `unsubscribe`. `look` shows whether a notification was lost."""
        wakeup = Wakeup(look)
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

    def poll_interval(self, alone: timedelta) -> timedelta:
        """How long a reader with a look waits: `alone` while the notifier has no connection."""
        return max(alone, QUIET_POLL) if self.is_listening else alone

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
            for topic in list(self._wakeups):
                self._wake(topic)  # from now on they have to poll

    async def _send(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        read_clock_at, ping_at = 0.0, time.monotonic() + PING_EVERY.total_seconds()
        while True:
            now = time.monotonic()
            if now >= read_clock_at:
                await read_clock(connection)
                read_clock_at = now + PING_EVERY.total_seconds()
            if now >= ping_at:
                await self._ping(connection)
                await self._database.check_primary()
                ping_at = now + PING_EVERY.total_seconds()
            left = await self._look(connection)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, ping_at - time.monotonic())):
                    await self._something_to_send.wait()
            if not self._something_to_send.is_set():
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
            ping_at = time.monotonic() + PING_EVERY.total_seconds()
            await asyncio.sleep(SEND_PAUSE.total_seconds())

    async def _look(self, connection: "asyncpg.Connection[asyncpg.Record]") -> float:
        """Wake the readers whose notifications were lost; returns the seconds until the next look."""
        began = time.monotonic()
        looks = {wakeup: wakeup.look for each in self._wakeups.values() for wakeup in each if wakeup.look}
        if any(each.look_at <= began for each in looks):
            due = [each for each in looks if each.look_at <= began + LOOK_TOGETHER]
            questions = list(dict.fromkeys(looks[each].question for each in due))
            row = await connection.fetchrow(f"SELECT {', '.join(questions)}")
            answers: dict[str, Any] = dict(zip(questions, row or (), strict=True))
            took = time.monotonic() - began
            for each in due:
                each.look_at = began + max(looks[each].seconds, LOOK_TIME_SHARE * took)
                each.take_answer(answers[looks[each].question])
        return min((each.look_at for each in looks), default=inf) - time.monotonic()

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
