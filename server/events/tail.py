"""Following the log: one reader of new events per process, and all subscriptions served from it."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from server.db.engine import Database
from server.db.signals import Signals, Wakeup
from server.db.trouble import DATABASE_TROUBLE
from server.errors import CursorExpired, Lagging
from server.events.cursor import Cursor
from server.events.epoch import LogState, confirm_epoch
from server.events.event import COLUMNS, Event, event_of
from server.events.replay import check_cursor, has_reached, page_of_events
from server.events.ring import Ring
from server.events.subscription import BACKLOG, Subscription

log = structlog.get_logger(__name__)

RING_SIZE = 2048  # about a minute of a busy installation, some 10 MB; older readers read the table
WINDOW = 500
POLL_EVERY = timedelta(milliseconds=500)  # the safety net below the wake-ups
DEAF_POLL_EVERY = timedelta(milliseconds=100)  # while no wake-up can come from another process
RECONNECT_AFTER = timedelta(milliseconds=250)
READY_WITHIN = timedelta(seconds=10)
PAGES_AT_ONCE = 3  # of the pool's connections: a thousand readers coming back must not starve the API
OFFERS_AT_ONCE = 1000  # then let the event loop do other work

# Positions have no gaps, so a span is a count. Both bounds are there for the planner: one or two partitions fit.
SPAN = f"SELECT {COLUMNS} FROM event WHERE position > $1 AND position <= $2 ORDER BY position"
OLDEST = "SELECT min(position) FROM event WHERE position > $1"

SESSION = {
    "application_name": "pilotlight tail",
    "timezone": "UTC",
    # A plan for these very bounds touches their partitions only; a general one would lock every partition each time.
    "plan_cache_mode": "force_custom_plan",
}


class Tail:
    """One per process. It keeps no place in the database: a reader's cursor is all there is to remember."""

    def __init__(self, database: Database, signals: Signals, *, ring_size: int = RING_SIZE) -> None:
        self._database = database
        self._signals = signals
        self._ring = Ring(ring_size)
        self._epoch: int | None = None
        self._ready = asyncio.Event()
        self._subscriptions: dict[UUID, dict[Subscription, None]] = defaultdict(dict)
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)
        self._task: asyncio.Task[None] | None = None
        self.is_following = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="tail")

    async def stop(self) -> None:
        """Subscriptions that are still open raise Lagging: the reader may resume elsewhere."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        self.is_following = False
        self._ready.clear()
        self._fail_all(Lagging("this process is stopping"))

    def head(self) -> Cursor:
        """Where live readers are now."""
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
        wanted: Callable[[Event], bool] | None = None,
        backlog: int = BACKLOG,
    ) -> Subscription:
        """Everything of that project after the cursor, then live; None: live from now.

        `instance_ids` and `types` are known to the table's indexes, `wanted` sees each event that they let through.
        Entering the context raises CursorExpired, Refused (INVALID_CURSOR) or Lagging.
        """
        return Subscription(
            self,
            project_id=project_id,
            after=after,
            instance_ids=instance_ids,
            types=types,
            wanted=wanted,
            backlog=backlog,
        )

    @property
    def ring(self) -> Ring:
        return self._ring

    @property
    def subscribers(self) -> int:
        return sum(len(each) for each in self._subscriptions.values())

    async def admit(self, subscription: Subscription, after: Cursor | None) -> Cursor:
        """For a subscription: where it begins. It is ours to serve from here on."""
        try:
            async with asyncio.timeout(READY_WITHIN.total_seconds()):
                await self._ready.wait()
        except TimeoutError:
            raise Lagging("the event log can't be read at the moment") from None
        start = self.head() if after is None else after
        # We may be a moment behind the process that handed the cursor out: ask the table before refusing.
        if start.epoch != self._epoch or start.position > self._ring.head or not self._ring.covers(start.position):
            async with self._pages, self._database.read() as session:
                await check_cursor(session, start)
        self._subscriptions[subscription.project_id][subscription] = None
        return start

    def dismiss(self, subscription: Subscription) -> None:
        of_project = self._subscriptions.get(subscription.project_id)
        if of_project is None:
            return
        of_project.pop(subscription, None)
        if not of_project:
            del self._subscriptions[subscription.project_id]

    async def page(self, subscription: Subscription, *, after: int, through: int, limit: int) -> list[Event]:
        """For a subscription that is behind the ring. The connection is given back before the page is handed out."""
        async with self._pages, AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._database.read_replica())
            # The past does not change: a replica that has the span's end has all of it.
            if session is None or not await has_reached(session, Cursor(subscription.epoch, through)):
                session = await stack.enter_async_context(self._database.read())
            return await page_of_events(
                session,
                project_id=subscription.project_id,
                after=after,
                through=through,
                instance_ids=subscription.instance_ids,
                types=subscription.types,
                limit=limit,
            )

    async def _run(self) -> None:
        bell = self._signals.wakeup("event")
        try:
            while True:
                try:
                    await self._serve_one_connection(bell)
                except DATABASE_TROUBLE as error:
                    if self.is_following:  # once, not at every try while the database is away
                        log.warning("tail.lost", error=type(error).__name__)
                except Exception:  # every reader of this process hangs on it: begin again from the ring's head
                    log.exception("tail.failed")
                self.is_following = False
                await asyncio.sleep(RECONNECT_AFTER.total_seconds())
        finally:
            self._signals.forget("event", bell)

    async def _serve_one_connection(self, bell: Wakeup) -> None:
        connection = await self._database.connect(server_settings=SESSION)
        try:
            while True:
                seen = None if self._epoch is None else LogState(self._epoch, self._ring.head)
                state = await confirm_epoch(connection, seen)
                if state.epoch != self._epoch:
                    await self._begin(connection, state)
                self._ready.set()
                self.is_following = True
                await self._follow(connection, bell, known_head=state.head)
        finally:
            connection.terminate()

    async def _begin(self, connection: "asyncpg.Connection[asyncpg.Record]", state: LogState) -> None:
        """Fill the ring, so that readers who come back after a restart of ours need not all read the table."""
        rows = await connection.fetch(SPAN, state.head - self._ring.size, state.head)
        if self._epoch is not None:
            log.warning("tail.other_log", epoch=state.epoch)
            self._fail_all(CursorExpired())
        self._epoch = state.epoch
        self._ring.restart(rows[0]["position"] - 1 if rows else state.head)
        for row in rows:
            self._ring.add(event_of(row))

    async def _follow(self, connection: "asyncpg.Connection[asyncpg.Record]", bell: Wakeup, *, known_head: int) -> None:
        """Until a poll finds nothing: then it is time to look whether this is still the same log."""
        while True:
            head = self._ring.head
            rows = await connection.fetch(SPAN, head, head + WINDOW)
            if rows[0]["position"] != head + 1 if rows else head < known_head:
                oldest = await connection.fetchval(OLDEST, head)
                self._lose_place(known_head if oldest is None else oldest - 1)
                continue
            await self._hand_out([event_of(row) for row in rows])
            if len(rows) == WINDOW:
                continue
            heard = await bell.wait(POLL_EVERY if self._signals.is_hearing else DEAF_POLL_EVERY)
            if not heard and not rows:
                return

    async def _hand_out(self, events: list[Event]) -> None:
        offers = 0
        for event in events:
            # Ring, head and offers change together, without an await: a reader joins before an event or after it.
            self._ring.add(event)
            of_project = self._subscriptions.get(event.project_id, {})
            for subscription in of_project:
                subscription.offer(event)
            offers += len(of_project)
            if offers >= OFFERS_AT_ONCE:
                offers = 0
                await asyncio.sleep(0)

    def _lose_place(self, head: int) -> None:
        """We were away for so long that retention passed us: each reader finds out from its own place."""
        log.warning("tail.overtaken", was=self._ring.head, now=head)
        for subscription in self._all():
            subscription.fall_behind()
        self._ring.restart(head)

    def _fail_all(self, error: Exception) -> None:
        for subscription in self._all():
            subscription.fail(error)

    def _all(self) -> list[Subscription]:
        return [each for of_project in self._subscriptions.values() for each in of_project]
