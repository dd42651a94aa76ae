"""Where a subscription's messages come from. A resolver answers with one of these; the cohort does the rest.

Any of them can also be iterated, which is what the GraphQL library does with it where there is no cohort.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from server.db.trouble import is_database_away
from server.events.cursor import Cursor
from server.events.event import Event
from server.events.subscription import Subscription
from server.events.tail import Tail

log = structlog.get_logger(__name__)

WINDOW = 256  # messages that a cohort keeps ready for those who come a little late
EVERY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class News:
    """One message before it is executed. Versions rise where there are any; a message of an old one is no news."""

    position: int
    item: Any
    version: int = 0
    cursor: str | None = None
    is_last: bool = False


class Feed(ABC):
    """`window` messages are kept by a cohort; `after` is where this reader wants to begin."""

    window: int = WINDOW
    after: Cursor | None = None
    has_state: bool = False  # whether how things are is told before the news
    takes_cursor: bool = False  # whether a reader may come back to a place in it
    keeps_past: bool = True  # whether who is late must still get everything

    @abstractmethod
    def now(self) -> int:
        """The position behind which news would come."""

    @abstractmethod
    def follow(self, started: Callable[[Cursor], None]) -> AsyncGenerator[News]:
        """News for ever; `started` is told behind which place they begin."""

    async def first(self) -> News | None:
        """How things are, told before the news; None where only news are told."""
        return None

    @abstractmethod
    def past(self, after: Cursor) -> Subscription:
        """The log from there on; only for feeds that are made of it."""

    @abstractmethod
    def news_of(self, event: Event, epoch: int) -> News | None:
        """What a line of the log is to these readers."""

    async def __aiter__(self) -> AsyncGenerator[Any]:
        version = 0
        first = await self.first()
        if first is not None:
            version = first.version
            yield first.item
            if first.is_last:
                return
        async for news in self._alone(first):
            if news.version and news.version <= version:
                continue
            version = news.version
            yield news.item
            if news.is_last:
                return

    async def _alone(self, first: News | None) -> AsyncGenerator[News]:
        async for news in self.follow(lambda _: None):
            yield news


class LogFeed(Feed):
    """Made of the log: `show` makes news of an event, `state` tells how things are."""

    def __init__(
        self,
        tail: Tail,
        *,
        project_id: UUID,
        show: Callable[[Event, str], News | None],
        instance_ids: Collection[UUID] | None = None,
        types: Collection[str] | None = None,
        wanted: Callable[[Event], bool] | None = None,
        state: Callable[[], Awaitable[News]] | None = None,
        after: Cursor | None = None,
    ) -> None:
        self._tail = tail
        self._project_id = project_id
        self._show = show
        self._instance_ids = instance_ids
        self._types = types
        self._wanted = wanted
        self._state = state
        self.after = after
        self.has_state = state is not None
        self.takes_cursor = state is None

    def now(self) -> int:
        return self._tail.head().position

    async def follow(self, started: Callable[[Cursor], None]) -> AsyncGenerator[News]:
        async with self._subscription(None) as events:
            started(events.cursor)
            async for event in events:
                news = self.news_of(event, events.epoch)
                if news is not None:
                    yield news

    async def first(self) -> News | None:
        return None if self._state is None else await self._state()

    def past(self, after: Cursor) -> Subscription:
        return self._subscription(after)

    def news_of(self, event: Event, epoch: int) -> News | None:
        cursor = str(Cursor(epoch, event.position))
        try:
            return self._show(event, cursor)
        except Exception as error:  # noqa: BLE001  # told as an error in its place: leaving it out would be a silent gap
            return News(event.position, error, cursor=cursor)

    async def _alone(self, first: News | None) -> AsyncGenerator[News]:
        after = self.after if first is None or first.cursor is None else Cursor.parse(first.cursor)
        async with self._subscription(after) as events:
            async for event in events:
                news = self.news_of(event, events.epoch)
                if news is not None:
                    yield news

    def _subscription(self, after: Cursor | None) -> Subscription:
        return self._tail.subscribe(
            project_id=self._project_id,
            after=after,
            instance_ids=self._instance_ids,
            types=self._types,
            wanted=self._wanted,
        )


class StatsFeed(Feed):
    """A value looked at once a second, told when it is another. Who is late gets the latest, nothing older."""

    window = 1
    keeps_past = False

    def __init__(self, look: Callable[[], Awaitable[Any]], *, same: Callable[[Any, Any], bool]) -> None:
        self._look = look
        self._same = same

    def now(self) -> int:
        return 0

    async def follow(self, started: Callable[[Cursor], None]) -> AsyncGenerator[News]:
        started(Cursor(0, 0))
        last: Any = None
        number = 0
        while True:
            value = await self._value()
            if value is not None and (last is None or not self._same(last, value)):
                last = value
                number += 1
                yield News(number, value)
            await asyncio.sleep(EVERY.total_seconds())

    async def _value(self) -> Any:
        try:
            return await self._look()
        except Exception as error:
            if not is_database_away(error):
                raise
            log.warning("stats.database_away", error=type(error).__name__)
            return None

    def past(self, after: Cursor) -> Subscription:
        raise LookupError("numbers have no past")

    def news_of(self, event: Event, epoch: int) -> News | None:
        raise LookupError("numbers are not made of events")
