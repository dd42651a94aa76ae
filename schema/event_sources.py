"""Event sources of subscriptions: a resolver returns one, and a broadcast follows it for all equal subscriptions.

A source can also be iterated directly, which is what the GraphQL library does where there is no broadcast.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from server.batching import TokenBucket
from server.db.outages import is_database_unavailable
from server.events.cursors import Cursors
from server.events.event import Cursor, Event
from server.events.reader import EventReader
from server.events.tail import Tail
from server.instances.queries.log import LogPart

log = structlog.get_logger(__name__)

WINDOW = 256  # messages that a broadcast keeps for subscribers that are slightly behind
EVENTS_SHOWN = 100  # of which the messages are kept
STATS_INTERVAL = timedelta(seconds=1)
LOG_INTERVAL = timedelta(seconds=2)
LOG_LINES = 200  # that a subscription begins with
# What sources read themselves, of a project. A dashboard reads a few times a second, however many people look at it:
# equal subscriptions share their reads.
READS_PER_SECOND, READS_AT_ONCE = 20, 40
PACES_MAX = 10_000  # projects


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """One message before it is executed. Versions must rise; 0: it has none."""

    position: int
    item: Any
    version: int = 0
    cursor: str | None = None
    is_last: bool = False


class ShownEvents:
    """What the newest events are shown as: made once for all subscriptions of a process, however they select."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, Any], Any] = {}

    def of(self, event: Event, cursor: str, to_item: Callable[..., Any]) -> Any:
        key = (cursor, to_item)
        found = self._shown.get(key)
        if found is None:
            if len(self._shown) >= EVENTS_SHOWN:
                del self._shown[next(iter(self._shown))]
            found = self._shown[key] = to_item(event, cursor=cursor)
        return found


class ReadPace:
    """One per process: a token may have thousands of subscriptions, each equal to no other. What a project reads beyond
    its pace waits, in the order in which it came."""

    def __init__(self) -> None:
        self._projects: dict[UUID, tuple[asyncio.Lock, TokenBucket]] = {}

    async def take(self, project_id: UUID) -> None:
        """Wait until the project may read once more."""
        if project_id not in self._projects:
            if len(self._projects) >= PACES_MAX:
                self._projects = {id: each for id, each in self._projects.items() if each[0].locked()}
            self._projects[project_id] = asyncio.Lock(), TokenBucket(READS_PER_SECOND, READS_AT_ONCE, time.monotonic())
        line, bucket = self._projects[project_id]
        async with line:
            moment = time.monotonic()
            if not bucket.take(moment):
                await asyncio.sleep(bucket.wait(moment))
                bucket.take(time.monotonic())


class EventSource(ABC):
    """A broadcast keeps the last `window` messages; `after` is the cursor that this subscriber resumes from."""

    window: int = WINDOW
    after: Cursor | None = None
    has_snapshot: bool = False  # whether the present state is sent before the changes
    accepts_cursor: bool = False  # whether a subscriber may resume from a cursor
    replays_missed: bool = True  # whether a slow subscriber still gets every message

    @abstractmethod
    def head(self) -> int:
        """The newest position; later messages have a higher one."""

    @abstractmethod
    def follow(self, started: Callable[[Cursor], None]) -> AsyncGenerator[SourceEvent]:
        """Endless; calls `started` with the cursor after which the messages begin."""

    async def snapshot(self) -> SourceEvent | None:
        """The present state, sent before the changes; None for a source of changes only."""
        return None

    @abstractmethod
    def replay(self, after: Cursor) -> EventReader:
        """The event log after that cursor; only for sources that read the log."""

    @abstractmethod
    def to_source_event(self, event: Event, epoch: int) -> SourceEvent | None:
        """The message for a logged event; None if it produces none."""

    async def __aiter__(self) -> AsyncGenerator[Any]:
        version = 0
        first = await self.snapshot()
        if first is not None:
            version = first.version
            yield first.item
            if first.is_last:
                return
        async for event in self._events(first):
            if event.version and event.version <= version:
                continue
            version = event.version
            yield event.item
            if event.is_last:
                return

    async def _events(self, first: SourceEvent | None) -> AsyncGenerator[SourceEvent]:
        async for event in self.follow(lambda _: None):
            yield event


class LogSource(EventSource):
    """Reads the event log: `show` makes a message of an event, `state` reads the present state.

    The conditions are those of `Tail.subscribe`.
    """

    def __init__(
        self,
        tail: Tail,
        cursors: Cursors,
        *,
        show: Callable[[Event, str], SourceEvent | None],
        state: Callable[[], Awaitable[SourceEvent]] | None = None,
        after: Cursor | None = None,
        **conditions: Any,
    ) -> None:
        self._tail = tail
        self._cursors = cursors
        self._show = show
        self._conditions = conditions
        self._state = state
        self.after = after
        self.has_snapshot = state is not None
        self.accepts_cursor = state is None

    def head(self) -> int:
        return self._tail.head().position

    async def follow(self, started: Callable[[Cursor], None]) -> AsyncGenerator[SourceEvent]:
        async with self._tail.subscribe(after=None, **self._conditions) as events:
            started(events.cursor)
            async for event in self._shown(events):
                yield event

    async def snapshot(self) -> SourceEvent | None:
        return None if self._state is None else await self._state()

    def replay(self, after: Cursor) -> EventReader:
        return self._tail.subscribe(after=after, **self._conditions)

    def to_source_event(self, event: Event, epoch: int) -> SourceEvent | None:
        cursor = self._cursors.of_event(Cursor(epoch, event.position))
        try:
            return self._show(event, cursor)
        except Exception as error:  # noqa: BLE001  # sent as an error in its place: skipping it would be a silent gap
            return SourceEvent(event.position, error, cursor=cursor)

    async def _events(self, first: SourceEvent | None) -> AsyncGenerator[SourceEvent]:
        after = self.after if first is None or first.cursor is None else self._cursors.parse(first.cursor)
        async with self._tail.subscribe(after=after, **self._conditions) as events:
            async for event in self._shown(events):
                yield event

    async def _shown(self, events: EventReader) -> AsyncGenerator[SourceEvent]:
        async for event in events:
            shown = self.to_source_event(event, events.epoch)
            if shown is not None:
                yield shown


class LogTextSource(EventSource):
    """Follows a machine's log: its last lines first, then what is added, read once for all equal subscriptions.

    A subscriber that reads too slowly may miss text; `begin` of the next part shows it.
    """

    has_snapshot = True
    replays_missed = False

    def __init__(
        self,
        read_end: Callable[[], Awaitable[LogPart]],
        read_from: Callable[[int], Awaitable[LogPart]],
        to_item: Callable[[LogPart], Any],
    ) -> None:
        self._read_end = read_end
        self._read_from = read_from
        self._to_item = to_item
        self._number = 0  # of parts read
        self._last = LogPart("", 0, 0)  # what a new subscriber begins with
        self._lock = asyncio.Lock()

    def head(self) -> int:
        return self._number

    async def snapshot(self) -> SourceEvent | None:
        async with self._lock:
            if self._number == 0:
                self._last, self._number = await self._read_end(), 1
            return SourceEvent(self._number, self._to_item(self._last))

    async def follow(self, started: Callable[[Cursor], None]) -> AsyncGenerator[SourceEvent]:
        await self.snapshot()
        started(Cursor(0, 0))
        while True:
            await asyncio.sleep(LOG_INTERVAL.total_seconds())
            async with self._lock:
                part = await self._read_from(self._last.end)
                if not part.text and part.end >= self._last.end:
                    continue
                self._number += 1
                is_more = part.begin == self._last.end
                text = (self._last.text if is_more else "") + part.text
                begin = self._last.begin if is_more else part.begin
                self._last = LogPart(text, begin, part.end).last_lines(LOG_LINES)
                event = SourceEvent(self._number, self._to_item(part))
            yield event

    def replay(self, after: Cursor) -> EventReader:
        raise LookupError("a log is not made of events")

    def to_source_event(self, event: Event, epoch: int) -> SourceEvent | None:
        raise LookupError("a log is not made of events")


class StatsSource(EventSource):
    """Reads a value once a second and sends it when it has changed. A slow subscriber gets only the latest value."""

    window = 1
    replays_missed = False

    def __init__(self, read: Callable[[], Awaitable[Any]], *, same: Callable[[Any, Any], bool]) -> None:
        self._read = read
        self._same = same

    def head(self) -> int:
        return 0

    async def follow(self, started: Callable[[Cursor], None]) -> AsyncGenerator[SourceEvent]:
        started(Cursor(0, 0))
        last: Any = None
        number = 0
        while True:
            value = await self._value()
            if value is not None and (last is None or not self._same(last, value)):
                last = value
                number += 1
                yield SourceEvent(number, value)
            await asyncio.sleep(STATS_INTERVAL.total_seconds())

    async def _value(self) -> Any:
        try:
            return await self._read()
        except Exception as error:
            if not is_database_unavailable(error):
                raise
            log.warning("stats.database_away", error=type(error).__name__)
            return None

    def replay(self, after: Cursor) -> EventReader:
        raise LookupError("statistics have no past")

    def to_source_event(self, event: Event, epoch: int) -> SourceEvent | None:
        raise LookupError("statistics are not made of events")
