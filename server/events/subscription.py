"""One reader's way through the log: from its cursor through the past, then live, and back when it is too slow."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self
from uuid import UUID

import structlog

from server.db.trouble import DATABASE_TROUBLE
from server.errors import CursorExpired
from server.events.cursor import Cursor
from server.events.event import Event
from server.events.ring import Ring
from server.observe import metrics

log = structlog.get_logger(__name__)

BACKLOG = 256
RETRY_AFTER = timedelta(milliseconds=250)


class Feed(Protocol):
    """What a subscription needs of the tail."""

    @property
    def ring(self) -> Ring: ...

    async def admit(self, subscription: "Subscription", after: Cursor | None) -> Cursor: ...

    def dismiss(self, subscription: "Subscription") -> None: ...

    async def page(self, subscription: "Subscription", *, after: int, through: int, limit: int) -> list[Event]: ...


class Subscription:
    """`async with` it, then iterate. It never ends by itself: it is closed, or it raises.

    At most `backlog` events wait in memory. When one more comes, the live feed passes this reader by, and it reads
    on from the ring or the table, at its own pace, until it has caught up. There is no await between reaching the
    ring's end and being live again, so nothing comes in between.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        project_id: UUID,
        after: Cursor | None,
        instance_ids: Collection[UUID] | None,
        types: Collection[str] | None,
        wanted: Callable[[Event], bool] | None,
        backlog: int,
    ) -> None:
        self.project_id = project_id
        self.instance_ids = None if instance_ids is None else frozenset(instance_ids)
        self.types = None if types is None else frozenset(str(each) for each in types)
        self._feed = feed
        self._after = after
        self._wanted = wanted
        self._backlog = backlog
        self._waiting: deque[Event] = deque()
        self._rung = asyncio.Event()
        self._is_live = False
        self._through = 0  # everything up to here was taken into `_waiting` or not wanted
        self._epoch = 0
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        start = await self._feed.admit(self, self._after)
        self._epoch = start.epoch
        self._through = start.position
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feed.dismiss(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if self._is_live:
                self._rung.clear()
                await self._rung.wait()
            else:
                await self._catch_up()
        return self._waiting.popleft()

    async def take(self) -> list[Event]:
        """What is there without waiting for news, possibly nothing; `cursor` then tells how far that reached."""
        if not self._waiting:
            if self._failure is not None:
                raise self._failure
            if not self._is_live:
                await self._catch_up()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def cursor(self) -> Cursor:
        """Resuming here misses nothing and repeats nothing that was handed out; it advances past unwanted events."""
        if self._waiting:
            position = self._waiting[0].position - 1
        elif self._is_live:
            position = max(self._through, self._feed.ring.head)
        else:
            position = self._through
        return Cursor(self._epoch, position)

    def cursor_of(self, event: Event) -> Cursor:
        """Resuming here begins with what follows this event."""
        return Cursor(self._epoch, event.position)

    @property
    def is_live(self) -> bool:
        return self._is_live

    @property
    def waiting(self) -> int:
        """How many events are in memory for this reader."""
        return len(self._waiting)

    def offer(self, event: Event) -> None:
        """From the tail, each event of the project once, in order."""
        if not self._is_live or event.position <= self._through:
            return
        if not self._wants(event):
            self._through = event.position
        elif len(self._waiting) < self._backlog:
            self._through = event.position
            self._waiting.append(event)
            self._rung.set()
        else:
            self._is_live = False
            self._through = event.position - 1
            metrics.FELL_BEHIND.add()

    def fall_behind(self) -> None:
        """From the tail, when it lost its own place: read on from the table."""
        if self._is_live:
            self._through = max(self._through, self._feed.ring.head)
            self._is_live = False
            self._rung.set()

    def fail(self, error: Exception) -> None:
        """End it: what waits is still handed out, then the error."""
        if self._failure is None:
            self._failure = error
        self._rung.set()

    async def _catch_up(self) -> None:
        ring = self._feed.ring
        if ring.covers(self._through):
            for event in ring.after(self._through):
                if len(self._waiting) >= self._backlog:
                    return
                self._through = event.position
                if event.project_id == self.project_id and self._wants(event):
                    self._waiting.append(event)
            self._is_live = True
            return
        through = ring.head
        try:
            page = await self._feed.page(self, after=self._through, through=through, limit=self._backlog)
        except CursorExpired as error:
            self.fail(error)
            return
        except DATABASE_TROUBLE as error:
            log.warning("subscription.waits", error=type(error).__name__)
            await asyncio.sleep(RETRY_AFTER.total_seconds())
            return
        self._waiting.extend(event for event in page if self._wants(event))
        self._through = page[-1].position if len(page) == self._backlog else through

    def _wants(self, event: Event) -> bool:
        if self.instance_ids is not None and event.instance_id not in self.instance_ids:
            return False
        if self.types is not None and event.type not in self.types:
            return False
        if self._wanted is None:
            return True
        try:
            return self._wanted(event)
        except Exception as error:  # noqa: BLE001  # called by the tail: one reader's mistake must not stop the others
            self.fail(error)
            return False
