"""One reader of the log: replays past events from its cursor, then follows live, and catches up when it is slow."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Protocol, Self
from uuid import UUID

import structlog

from server.db.outages import DATABASE_ERRORS
from server.errors import CursorExpired
from server.events.event import Cursor, Event
from server.events.ring import Ring
from server.observe import metrics

log = structlog.get_logger(__name__)

BACKLOG_MAX = 256
RETRY_DELAY = timedelta(milliseconds=250)


class LogTail(Protocol):
    """What a reader needs of the tail."""

    @property
    def ring(self) -> Ring: ...

    async def add_reader(self, reader: "EventReader", after: Cursor | None) -> Cursor: ...

    def remove_reader(self, reader: "EventReader") -> None: ...

    async def page(self, reader: "EventReader", *, after: int, through: int, limit: int) -> list[Event]: ...


class EventReader:
    """An async context manager and iterator. It ends only by being closed or by raising.

    At most `backlog` events are queued in memory. At one more the reader stops being live and reads from the ring or
    the table at its own pace until it has caught up. There is no await between reaching the ring's end and being live
    again, so no event is missed.
    """

    def __init__(
        self,
        feed: LogTail,
        *,
        project_id: UUID,
        after: Cursor | None,
        instance_ids: Collection[UUID] | None,
        types: Collection[str] | None,
        without_instance: bool,
        predicate: Callable[[Event], bool] | None,
        backlog: int,
    ) -> None:
        self.project_id = project_id
        self.instance_ids = None if instance_ids is None else frozenset(instance_ids)
        self.types = None if types is None else frozenset(str(each) for each in types)
        self.without_instance = without_instance
        self._source = feed
        self._after = after
        self._predicate = predicate
        self._backlog = backlog
        self._queue: deque[Event] = deque()
        self._event = asyncio.Event()
        self.is_live = False
        self._through = 0  # everything up to here was queued or did not match
        self._epoch = 0
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        start = await self._source.add_reader(self, self._after)
        self._epoch = start.epoch
        self._through = start.position
        return self

    async def __aexit__(self, *_: object) -> None:
        self._source.remove_reader(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            if self._failure is not None:
                raise self._failure
            if self.is_live:
                self._event.clear()
                await self._event.wait()
            else:
                await self._catch_up()
        return self._queue.popleft()

    async def take(self) -> list[Event]:
        """The available events, possibly none, without waiting for live ones; `cursor` then says how far they reach."""
        if not self._queue:
            if self._failure is not None:
                raise self._failure
            if not self.is_live:
                await self._catch_up()
        events = list(self._queue)
        self._queue.clear()
        return events

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def cursor(self) -> Cursor:
        """Resuming here skips and repeats no event; it advances past events that do not match."""
        if self._queue:
            position = self._queue[0].position - 1
        elif self.is_live:
            position = max(self._through, self._source.ring.head)
        else:
            position = self._through
        return Cursor(self._epoch, position)

    def cursor_of(self, event: Event) -> Cursor:
        """Resuming here starts after this event."""
        return Cursor(self._epoch, event.position)

    @property
    def waiting(self) -> int:
        """Number of queued events."""
        return len(self._queue)

    def offer(self, event: Event) -> None:
        """Called by the tail for each event of the project, in order."""
        if not self.is_live or event.position <= self._through:
            return
        if not self._matches(event):
            self._through = event.position
        elif len(self._queue) < self._backlog:
            self._through = event.position
            self._queue.append(event)
            self._event.set()
        else:
            self.is_live = False
            self._through = event.position - 1
            metrics.FELL_BEHIND.add()

    def fall_behind(self) -> None:
        """Called by the tail when it skipped dropped events: continue from the table."""
        if self.is_live:
            self._through = max(self._through, self._source.ring.head)
            self.is_live = False
            self._event.set()

    def fail(self, error: Exception) -> None:
        """Raise the error after the queued events."""
        if self._failure is None:
            self._failure = error
        self._event.set()

    async def _catch_up(self) -> None:
        ring = self._source.ring
        if ring.covers(self._through):
            for event in ring.after(self._through):
                if len(self._queue) >= self._backlog:
                    return
                self._through = event.position
                if event.project_id == self.project_id and self._matches(event):
                    self._queue.append(event)
            self.is_live = True
            return
        through = ring.head
        try:
            page = await self._source.page(self, after=self._through, through=through, limit=self._backlog)
        except CursorExpired as error:
            self.fail(error)
            return
        except DATABASE_ERRORS as error:
            log.warning("subscription.waits", error=type(error).__name__)
            await asyncio.sleep(RETRY_DELAY.total_seconds())
            return
        self._queue.extend(event for event in page if self._matches(event))
        self._through = page[-1].position if len(page) == self._backlog else through

    def _matches(self, event: Event) -> bool:
        if self.instance_ids is not None and event.instance_id not in self.instance_ids:
            return False
        if self.without_instance and event.instance_id is not None:
            return False
        if self.types is not None and event.type not in self.types:
            return False
        if self._predicate is None:
            return True
        try:
            return self._predicate(event)
        except Exception as error:  # noqa: BLE001  # called by the tail: one reader's error must not stop the others
            self.fail(error)
            return False
