"""Subscriptions that ask for the same with the same rights: executed once, serialised once, sent to each.

A member is *live* when it gets every message as it is made. Before that, and whenever its client reads too slowly, it
is brought up from its own place in the log. Reaching the newest message and becoming live happen without an await in
between, so nothing comes twice and nothing is left out.
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

from schema.live.execution import Execution
from schema.live.feeds import News
from schema.live.member import UNSETTLED, Member, Message
from schema.live.results import Results
from server.events.cursor import Cursor
from server.observe import metrics

FRESH_FOR = 30.0  # seconds; a message may hold things "as they are now", and now is not long ago
WINDOW_BYTES = 1024 * 1024
ALONE = 8  # messages in the window of a cohort of one
AT_ONCE = 500  # members; then the event loop may do other work


class Cohort:
    """One task, one reader of the log, any number of members."""

    def __init__(self, execution: Execution, results: Results, *, on_empty: Callable[[], None]) -> None:
        self._execution = execution
        self._feed = execution.feed
        self._results = results
        self._on_empty = on_empty
        self._live: dict[Member, None] = {}
        self._size = 0
        self._window: deque[Message] = deque()
        self._bytes = 0
        self._from = 0  # every message behind this position is in the window
        self._begun_at = 0
        self._epoch = 0
        self._started = asyncio.Event()
        self._failure: Exception | None = None
        # Without the first member's context: its request id and the like are nobody else's.
        self._task = asyncio.create_task(self._run(), name="cohort", context=contextvars.Context())

    def __len__(self) -> int:
        return self._size

    @property
    def is_over(self) -> bool:
        return self._failure is not None

    @property
    def takes_cursor(self) -> bool:
        return self._feed.takes_cursor

    def join(self, member: Member, after: Cursor | None) -> None:
        """From that cursor on, or with how things are, or from this very moment."""
        member.home = self
        self._size += 1
        try:
            if after is not None:
                member.position = after.position
                is_near = after.epoch == self._epoch and after.position <= self._feed.now()
            else:
                is_near = self._started.is_set() and not self._feed.has_state
                # Where it begins is settled now, not when a task gets its turn.
                member.position = self._feed.now() if is_near else UNSETTLED
            if is_near and self._admit(member):
                return
        except Exception as error:  # noqa: BLE001  # told to the client
            member.finish(self._results.errors_of(error))
            return
        self._give_task(member, partial(self._introduce, member, after))

    def leave(self, member: Member) -> None:
        self._live.pop(member, None)
        self._size -= 1
        if self._size == 0:
            self._task.cancel()
            self._on_empty()

    def resume(self, member: Member) -> None:
        """There is room again for a member that was too slow."""
        if member.is_over or member.task is not None or member in self._live:
            return
        try:
            if self._admit(member):
                return
        except Exception as error:  # noqa: BLE001  # told to the client
            member.finish(self._results.errors_of(error))
            return
        self._give_task(member, partial(self._bring_up, member, Cursor(self._epoch, member.position)))

    def _give_task(self, member: Member, work: Callable[[], Awaitable[None]]) -> None:
        member.task = asyncio.create_task(self._guarded(member, work), name="member", context=contextvars.Context())

    async def _introduce(self, member: Member, after: Cursor | None) -> None:
        await self._started.wait()
        if self._failure is not None:
            raise self._failure
        if self._feed.has_state:
            first = await self._feed.first()
            if first is not None:
                member.deliver(await self._message(first))
        elif member.position == UNSETTLED:
            member.position = self._begun_at
        if member.is_over or (after is None and self._admit(member)):
            return
        await self._bring_up(member, after or Cursor(self._epoch, member.position))

    async def _bring_up(self, member: Member, after: Cursor) -> None:
        """Read the log from there until the window is reached."""
        member.position = after.position
        async with self._feed.past(after) as past:
            while not member.is_over and not self._admit(member):
                if member.is_full:
                    await member.room()
                    continue
                for event in await past.take():
                    news = self._feed.news_of(event, past.epoch)
                    if news is None:
                        continue
                    message = await self._message(news)
                    while member.is_full and not member.is_over:
                        await member.room()
                    if member.is_over:
                        return
                    member.deliver(message)
                member.position = max(member.position, past.cursor.position)

    async def _guarded(self, member: Member, work: Callable[[], Awaitable[None]]) -> None:
        """One member's trouble is its own."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # told to the client, and logged where it is a bug
            member.task = None
            member.finish(self._results.errors_of(error))
        else:
            if member.task is asyncio.current_task():
                member.task = None

    def _admit(self, member: Member) -> bool:
        """Send what the window has for it, and count it as live; False when it must read the log first."""
        if self._failure is not None:
            raise self._failure
        self._forget_old()
        if not self._started.is_set() or member.position < self._from:
            return False
        if self._window and self._window[-1].position > member.position:
            for message in list(self._window):
                if message.position <= member.position:
                    continue
                if member.is_full:
                    return False
                member.deliver(message)
                if member.is_over:
                    return True
        self._live[member] = None
        return True

    def _forget_old(self) -> None:
        if not self._feed.keeps_past:
            return  # the latest value is never too old: it would be told again if it were another
        oldest = time.monotonic() - FRESH_FOR
        while self._window and self._window[0].made_at < oldest:
            self._drop_oldest()

    async def _run(self) -> None:
        try:
            async with aclosing(self._feed.follow(self._start)) as stream:
                async for news in stream:
                    await self._publish(await self._message(news))
            raise RuntimeError("a feed came to an end")
        except Exception as error:  # noqa: BLE001  # every member is told
            self._failure = error
            self._started.set()
            errors = self._results.errors_of(error)
            for member in list(self._live):
                member.finish(errors)

    def _start(self, cursor: Cursor) -> None:
        self._epoch = cursor.epoch
        self._from = self._begun_at = cursor.position
        self._started.set()

    def _keep(self, message: Message) -> None:
        """In the window, which is small for who is alone: thousands of cohorts of one must not fill the memory."""
        self._window.append(message)
        self._bytes += len(message.body)
        most = self._feed.window if self._size > 1 else min(self._feed.window, ALONE)
        while len(self._window) > most or (self._bytes > WINDOW_BYTES and len(self._window) > 1):
            self._drop_oldest()
        if not self._feed.keeps_past:
            self._from = 0

    def _drop_oldest(self) -> None:
        oldest = self._window.popleft()
        self._bytes -= len(oldest.body)
        self._from = oldest.position

    async def _publish(self, message: Message) -> None:
        self._keep(message)
        sent = 0
        for member in list(self._live):
            if member.is_over or member not in self._live:
                continue  # left, or fell behind, while the loop did other work
            if member.is_full:
                del self._live[member]
                metrics.FELL_BEHIND.add()
                member.wait_for_room()
                continue
            member.deliver(message)
            sent += 1
            if sent % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _message(self, news: News) -> Message:
        body = self._results.body_of(await self._execution.result_of(news.item)) + b"}"
        return Message(news.position, news.version, news.cursor, body, news.is_last, time.monotonic())
