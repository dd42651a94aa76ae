"""A broadcast: equal subscriptions of the same project and role, executed and serialised once.

A subscriber is *live* when it gets every message as it is made. Before that, and whenever its client reads too slowly,
it catches up from its own position in the log. Reaching the newest message and becoming live happen without an await in
between, so no message is repeated or lost.
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

from schema.event_sources import SourceEvent
from server.events.event import Cursor
from server.graphql.live.results import ResultEncoder
from server.graphql.live.source import SubscriptionExecution
from server.graphql.live.subscriber import NOT_STARTED, Message, Subscriber
from server.observe import metrics

WINDOW_TTL = 30.0  # seconds; a message may show current state, so old messages must not be sent
WINDOW_BYTES_MAX = 1024 * 1024
SINGLE_WINDOW_MAX = 8  # messages kept for a broadcast with one subscriber
DELIVERIES_PER_TURN = 50


class Broadcast:
    """One task and one reader of the log for any number of subscribers."""

    def __init__(
        self,
        execution: SubscriptionExecution,
        results: ResultEncoder,
        *,
        turn: Callable[[], Awaitable[None]],
        on_empty: Callable[[], None],
    ) -> None:
        """`turn` is waited for before each execution and each slice of writes."""
        self._execution = execution
        self._feed = execution.feed
        self._results = results
        self._turn = turn
        self._on_empty = on_empty
        self._live: dict[Subscriber, None] = {}
        self._size = 0
        self._window: deque[Message] = deque()
        self._bytes = 0
        self._window_start = 0  # every message after this position is in the window
        self._begun_at = 0
        self._epoch = 0
        self._started = asyncio.Event()
        self._failure: Exception | None = None
        # An empty context: the first subscriber's request id must not appear in the others' logs.
        self._task = asyncio.create_task(self._run(), name="broadcast", context=contextvars.Context())

    def __len__(self) -> int:
        return self._size

    @property
    def is_over(self) -> bool:
        return self._failure is not None

    @property
    def takes_cursor(self) -> bool:
        return self._feed.accepts_cursor

    def join(self, subscriber: Subscriber, after: Cursor | None) -> None:
        """Start from the cursor, or with the current state, or with the next event."""
        subscriber.owner = self
        self._size += 1
        try:
            if after is not None:
                subscriber.position = after.position
                is_near = after.epoch == self._epoch and after.position <= self._feed.head()
            else:
                is_near = self._started.is_set() and not self._feed.has_snapshot
                # The start position is fixed now, not when a task runs.
                subscriber.position = self._feed.head() if is_near else NOT_STARTED
            if is_near and self._go_live(subscriber):
                return
        except Exception as error:  # noqa: BLE001  # sent to the client
            subscriber.finish(self._results.errors_of(error))
            return
        self._start_task(subscriber, partial(self._start_subscriber, subscriber, after))

    def leave(self, subscriber: Subscriber) -> None:
        self._live.pop(subscriber, None)
        self._size -= 1
        if self._size == 0:
            self._task.cancel()
            self._on_empty()

    def resume(self, subscriber: Subscriber) -> None:
        """A subscriber that was too slow can be written to again."""
        if subscriber.is_over or subscriber.task is not None or subscriber in self._live:
            return
        try:
            if self._go_live(subscriber):
                return
        except Exception as error:  # noqa: BLE001  # sent to the client
            subscriber.finish(self._results.errors_of(error))
            return
        self._start_task(subscriber, partial(self._catch_up, subscriber, Cursor(self._epoch, subscriber.position)))

    def _start_task(self, subscriber: Subscriber, work: Callable[[], Awaitable[None]]) -> None:
        subscriber.task = asyncio.create_task(
            self._run_task(subscriber, work), name="subscriber", context=contextvars.Context()
        )

    async def _start_subscriber(self, subscriber: Subscriber, after: Cursor | None) -> None:
        await self._started.wait()
        if self._failure is not None:
            raise self._failure
        if self._feed.has_snapshot:
            first = await self._feed.snapshot()
            if first is not None:
                subscriber.deliver(await self._message(first))
        elif subscriber.position == NOT_STARTED:
            subscriber.position = self._begun_at
        if subscriber.is_over or (after is None and self._go_live(subscriber)):
            return
        await self._catch_up(subscriber, after or Cursor(self._epoch, subscriber.position))

    async def _catch_up(self, subscriber: Subscriber, after: Cursor) -> None:
        """Send events from the log until the window is reached."""
        subscriber.position = after.position
        async with self._feed.replay(after) as past:
            while not subscriber.is_over and not self._go_live(subscriber):
                if subscriber.is_full:
                    await subscriber.wait_until_writable()
                    continue
                for event in await past.take():
                    source_event = self._feed.to_source_event(event, past.epoch)
                    if source_event is None:
                        continue
                    message = await self._message(source_event)
                    while subscriber.is_full and not subscriber.is_over:
                        await subscriber.wait_until_writable()
                    if subscriber.is_over:
                        return
                    subscriber.deliver(message)
                subscriber.position = max(subscriber.position, past.cursor.position)

    async def _run_task(self, subscriber: Subscriber, work: Callable[[], Awaitable[None]]) -> None:
        """An error ends only this subscriber."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # sent to the client, and logged if it is a bug
            subscriber.task = None
            subscriber.finish(self._results.errors_of(error))
        else:
            if subscriber.task is asyncio.current_task():
                subscriber.task = None

    def _go_live(self, subscriber: Subscriber) -> bool:
        """Send what the window has for it and make it live; False when it must read the log first."""
        if self._failure is not None:
            raise self._failure
        self._expire_window()
        if not self._started.is_set() or subscriber.position < self._window_start:
            return False
        if self._window and self._window[-1].position > subscriber.position:
            for message in list(self._window):
                if message.position <= subscriber.position:
                    continue
                if subscriber.is_full:
                    return False
                subscriber.deliver(message)
                if subscriber.is_over:
                    return True
        self._live[subscriber] = None
        return True

    def _expire_window(self) -> None:
        if not self._feed.replays_missed:
            return  # the latest value is never too old: a change would have replaced it
        oldest = time.monotonic() - WINDOW_TTL
        while self._window and self._window[0].made_at < oldest:
            self._drop_oldest()

    async def _run(self) -> None:
        try:
            async with aclosing(self._feed.follow(self._start)) as stream:
                async for source_event in stream:
                    await self._publish(await self._message(source_event))
            raise RuntimeError("an event source ended")
        except Exception as error:  # noqa: BLE001  # sent to every subscriber
            self._failure = error
            self._started.set()
            errors = self._results.errors_of(error)
            for subscriber in list(self._live):
                subscriber.finish(errors)

    def _start(self, cursor: Cursor) -> None:
        self._epoch = cursor.epoch
        self._window_start = self._begun_at = cursor.position
        self._started.set()

    def _add_to_window(self, message: Message) -> None:
        """The window is small for a single subscriber: thousands of such broadcasts must not fill the memory."""
        self._window.append(message)
        self._bytes += len(message.body)
        most = self._feed.window if self._size > 1 else min(self._feed.window, SINGLE_WINDOW_MAX)
        while len(self._window) > most or (self._bytes > WINDOW_BYTES_MAX and len(self._window) > 1):
            self._drop_oldest()
        if not self._feed.replays_missed:
            self._window_start = 0

    def _drop_oldest(self) -> None:
        oldest = self._window.popleft()
        self._bytes -= len(oldest.body)
        self._window_start = oldest.position

    async def _publish(self, message: Message) -> None:
        self._add_to_window(message)
        sent = 0
        for subscriber in list(self._live):
            if subscriber.is_over or subscriber not in self._live:
                continue  # left or fell behind while other tasks ran
            if subscriber.is_full:
                del self._live[subscriber]
                metrics.FELL_BEHIND.add()
                subscriber.resume_when_writable()
                continue
            subscriber.deliver(message)
            sent += 1
            if sent % DELIVERIES_PER_TURN == 0:
                await self._turn()

    async def _message(self, source_event: SourceEvent) -> Message:
        await self._turn()
        body = self._results.body_of(await self._execution.result_of(source_event.item)) + b"}"
        return Message(
            source_event.position,
            source_event.version,
            source_event.cursor,
            body,
            source_event.is_last,
            time.monotonic(),
        )
