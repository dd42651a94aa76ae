"""Follows the event log: one connection per process reads new events and offers them to all readers."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from server.db.database import Database
from server.db.notify import Look, Notifier, Wakeup
from server.db.outages import DATABASE_ERRORS
from server.errors import CursorExpired, Lagging
from server.events.event import COLUMNS, Cursor, Event, event_of
from server.events.log_identity import LogState, confirm_epoch
from server.events.reader import BACKLOG_MAX, EventReader
from server.events.replay import check_cursor, has_reached, page_of_events
from server.events.ring import Ring
from server.tasks import stop_task

log = structlog.get_logger(__name__)
RING_SIZE = 2048  # about a minute of a busy installation, 10 MB; older cursors read the table
WINDOW = 500
POLL_INTERVAL = timedelta(milliseconds=100)  # while notifications of other processes are not received
RECONNECT_DELAY = timedelta(milliseconds=250)
READY_TIMEOUT = timedelta(seconds=10)
CONCURRENT_PAGES_MAX = 3  # of the pool's connections: a thousand reconnecting readers must not starve the API
OFFERS_MAX = 1000  # then yield to the event loop
# Positions have no gaps, so a span is a count. With both bounds the planner considers one or two partitions only.
READ_SPAN = f"SELECT {COLUMNS} FROM event WHERE position > $1 AND position <= $2 ORDER BY position"
LOOK = Look("(SELECT epoch || ' ' || head FROM event_log)")
READ_OLDEST = "SELECT min(position) FROM event WHERE position > $1"
SESSION = {
    "application_name": "pilotlight tail",
    # A custom plan touches only the partitions of its bounds; a generic one would lock every partition each time.
    "plan_cache_mode": "force_custom_plan",
}


class Tail:
    """One per process. It stores nothing in the database: a reader resumes from its own cursor."""

    def __init__(self, database: Database, notifier: Notifier, *, ring_size: int = RING_SIZE) -> None:
        self._database = database
        self._notifier = notifier
        self._ring = Ring(ring_size)
        self._epoch: int | None = None
        self._ready = asyncio.Event()
        self._readers: dict[UUID, dict[EventReader, None]] = defaultdict(dict)
        self._pages = asyncio.Semaphore(CONCURRENT_PAGES_MAX)
        self._task: asyncio.Task[None] | None = None
        self.is_following = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="tail")

    async def stop(self) -> None:
        """Readers that are still open raise Lagging: clients may resume at another process."""
        if self._task is None:
            return
        await stop_task(self._task)
        self._task = None
        self.is_following = False
        self._ready.clear()
        self._fail_all(Lagging("this process is stopping"))

    def head(self) -> Cursor:
        """The position of live readers."""
        if self._epoch is None:
            raise Lagging("the event log has not been read yet")
        return Cursor(self._epoch, self._ring.head)

    def subscribe(
        self,
        *,
        project_id: UUID,
        after: Cursor | None,
        instance_ids: Collection[UUID] | None = None,
        types: Collection[str] | None = None,
        without_instance: bool = False,
        predicate: Callable[[Event], bool] | None = None,
        backlog: int = BACKLOG_MAX,
    ) -> EventReader:
        """The project's events after the cursor, then live ones; None starts live.

        `instance_ids`, `types` and `without_instance` use indexes; `predicate` is called for the events that they let
        through.
        Entering the context raises CursorExpired or Lagging.
        """
        return EventReader(
            self,
            project_id=project_id,
            after=after,
            instance_ids=instance_ids,
            types=types,
            without_instance=without_instance,
            predicate=predicate,
            backlog=backlog,
        )

    @property
    def ring(self) -> Ring:
        return self._ring

    @property
    def subscribers(self) -> int:
        return sum(len(each) for each in self._readers.values())

    async def add_reader(self, reader: EventReader, after: Cursor | None) -> Cursor:
        """Register a reader; returns its start position."""
        try:
            async with asyncio.timeout(READY_TIMEOUT.total_seconds()):
                await self._ready.wait()
        except TimeoutError:
            raise Lagging("the event log can't be read at the moment") from None
        start = self.head() if after is None else after
        # This process may be behind the one that issued the cursor: check the table before refusing.
        if start.epoch != self._epoch or start.position > self._ring.head or not self._ring.covers(start.position):
            async with self._pages, self._database.read() as session:
                await check_cursor(session, start)
        self._readers[reader.project_id][reader] = None
        return start

    def remove_reader(self, reader: EventReader) -> None:
        of_project = self._readers.get(reader.project_id)
        if of_project is None:
            return
        of_project.pop(reader, None)
        if not of_project:
            del self._readers[reader.project_id]

    async def page(self, reader: EventReader, *, after: int, through: int, limit: int) -> list[Event]:
        """For a reader that is behind the ring. The connection is returned before the page is."""
        async with self._pages, AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._database.read_replica())
            # Past events do not change: a replica that has the end of the span has all of it.
            if session is None or not await has_reached(session, Cursor(reader.epoch, through)):
                session = await stack.enter_async_context(self._database.read())
            return await page_of_events(
                session,
                project_id=reader.project_id,
                after=after,
                through=through,
                instance_ids=reader.instance_ids,
                types=reader.types,
                without_instance=reader.without_instance,
                limit=limit,
            )

    async def _run(self) -> None:
        wakeup = self._notifier.subscribe("event", LOOK)
        try:
            while True:
                try:
                    await self._serve_one_connection(wakeup)
                except DATABASE_ERRORS as error:
                    if self.is_following:  # once per outage
                        log.warning("tail.lost", error=type(error).__name__)
                except Exception:  # all readers depend on this task: restart from the ring's head
                    log.exception("tail.failed")
                self.is_following = False
                await asyncio.sleep(RECONNECT_DELAY.total_seconds())
        finally:
            self._notifier.unsubscribe("event", wakeup)

    async def _serve_one_connection(self, wakeup: Wakeup) -> None:
        connection = await self._database.connect(server_settings=SESSION)
        try:
            while True:
                seen = None if self._epoch is None else LogState(self._epoch, self._ring.head)
                state = await confirm_epoch(connection, seen)
                if state.epoch != self._epoch:
                    await self._begin(connection, state)
                self._ready.set()
                self.is_following = True
                await self._follow(connection, wakeup, known_head=state.head)
        finally:
            connection.terminate()

    async def _begin(self, connection: "asyncpg.Connection[asyncpg.Record]", state: LogState) -> None:
        """Fill the ring, so that clients that reconnect after a restart do not all read the table."""
        rows = await connection.fetch(READ_SPAN, state.head - self._ring.size, state.head)
        if self._epoch is not None:
            log.warning("tail.other_log", epoch=state.epoch)
            self._fail_all(CursorExpired())
        self._epoch = state.epoch
        self._ring.restart(rows[0]["position"] - 1 if rows else state.head)
        for row in rows:
            self._ring.add(event_of(row))

    async def _follow(
        self, connection: "asyncpg.Connection[asyncpg.Record]", wakeup: Wakeup, *, known_head: int
    ) -> None:
        """Returns when a poll finds nothing; the caller then checks that this is still the same log."""
        while True:
            head = self._ring.head
            rows = await connection.fetch(READ_SPAN, head, head + WINDOW)
            if rows[0]["position"] != head + 1 if rows else head < known_head:
                oldest = await connection.fetchval(READ_OLDEST, head)
                self._skip_dropped(known_head if oldest is None else oldest - 1)
                continue
            await self._broadcast([event_of(row) for row in rows])
            if len(rows) == WINDOW:
                continue
            was_notified = await wakeup.wait(self._notifier.poll_interval(POLL_INTERVAL))
            if not was_notified and not rows:
                return

    async def _broadcast(self, events: list[Event]) -> None:
        offers = 0
        for event in events:
            # No await between ring and offers: a reader is added before an event or after it, never between.
            self._ring.add(event)
            of_project = self._readers.get(event.project_id, {})
            for reader in of_project:
                reader.offer(event)
            offers += len(of_project)
            if offers >= OFFERS_MAX:
                offers = 0
                await asyncio.sleep(0)

    def _skip_dropped(self, head: int) -> None:
        """Retention dropped events that this process had not read: each reader checks its own position."""
        log.warning("tail.overtaken", was=self._ring.head, now=head)
        for reader in self._all():
            reader.fall_behind()
        self._ring.restart(head)

    def _fail_all(self, error: Exception) -> None:
        for reader in self._all():
            reader.fail(error)

    def _all(self) -> list[EventReader]:
        return [each for of_project in self._readers.values() for each in of_project]
