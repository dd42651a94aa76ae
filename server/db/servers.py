"""Which of several servers is the one to write to, also while they change places."""

import asyncio
import contextlib
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import structlog

from server.db.trouble import DATABASE_TROUBLE
from server.db.url import each_server

log = structlog.get_logger(__name__)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CONNECT_WITHIN = timedelta(seconds=10)
WAIT_FOR_OTHERS = timedelta(milliseconds=500)  # once one has answered: a machine that is gone answers never
SURE_FOR = timedelta(seconds=2)  # a pool that fills itself asks one server, not all of them each time

# Every promotion begins a new timeline: of two servers that both take writes, the lower one was deposed and does not
# know it yet.
TIMELINE = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"


@dataclass(frozen=True, slots=True)
class _Made:
    """A connection, and where it goes. It belongs to the event loop that made it."""

    connection: "weakref.ref[Connection]"
    loop: asyncio.AbstractEventLoop
    url: str


class Servers:
    """The servers of one URL. Connections are only ever made to one that takes writes.

    Used from several threads at once (a lease is renewed on its own), so there is no asyncio lock in here.
    """

    def __init__(self, url: str) -> None:
        self._urls = each_server(url)
        self._best: str | None = None
        self._sure_until = 0.0
        self._made: set[_Made] = set()

    @property
    def are_many(self) -> bool:
        return len(self._urls) > 1

    async def connect(self, *, timeout: float | None = None, **options: Any) -> Connection:
        """A connection to the server that takes writes; raises what the last one said when there is none."""
        timeout = CONNECT_WITHIN.total_seconds() if timeout is None else timeout
        if not self.are_many:
            return await _connect(self._urls[0], timeout, options)
        if self._best is not None and time.monotonic() < self._sure_until:
            with contextlib.suppress(*DATABASE_TROUBLE):
                return self._keep(await _connect(self._best, timeout, options), self._best)
            self._sure_until = 0.0
        return await self._connect_to_newest(timeout, options)

    async def look_around(self) -> None:
        """See whether another server has taken over, and leave the deposed one: it might never say so itself."""
        if not self.are_many:
            return
        with contextlib.suppress(*DATABASE_TROUBLE):
            connection = await self._connect_to_newest(CONNECT_WITHIN.total_seconds(), {})
            connection.terminate()

    async def _connect_to_newest(self, timeout: float, options: dict[str, Any]) -> Connection:
        tries = [asyncio.ensure_future(_look(url, timeout, options)) for url in self._urls]
        waiting = set(tries)
        try:
            while waiting:
                found = any(_answered(each) for each in tries)
                patience = WAIT_FOR_OTHERS.total_seconds() if found else None  # each has its own timeout
                done, waiting = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
        except BaseException:
            await _discard(tries, but=None)
            raise
        answers = [(each.result()[0], place) for place, each in enumerate(tries) if _answered(each)]
        place = max(answers)[1] if answers else None
        await _discard(tries, but=place)
        if place is None:
            errors = [error for each in tries if not each.cancelled() and (error := each.exception())]
            raise errors[-1] if errors else TimeoutError("no server answered")
        self._choose(self._urls[place])
        return self._keep(tries[place].result()[1], self._urls[place])

    def _choose(self, url: str) -> None:
        changed = self._best is not None and url != self._best
        self._best, self._sure_until = url, time.monotonic() + SURE_FOR.total_seconds()
        if not changed:
            return
        log.warning("database.moved")
        for made in list(self._made):
            connection = made.connection()
            if made.url != url and connection is not None:
                # Reads would go on there for ever, and show a past that nobody adds to.
                with contextlib.suppress(RuntimeError):  # its loop has ended, and it with it
                    made.loop.call_soon_threadsafe(connection.terminate)

    def _keep(self, connection: Connection, url: str) -> Connection:
        self._made = {made for made in self._made if (at := made.connection()) is not None and not at.is_closed()}
        self._made.add(_Made(weakref.ref(connection), asyncio.get_running_loop(), url))
        return connection


async def _connect(url: str, timeout: float, options: dict[str, Any]) -> Connection:
    attributes = {} if "target_session_attrs=" in url else {"target_session_attrs": "read-write"}
    try:
        return await asyncpg.connect(url, timeout=timeout, **attributes, **options)
    except asyncpg.TargetServerAttributeNotMatched as error:
        # As a server says it that is not ready yet: everybody knows already what to make of that.
        raise asyncpg.CannotConnectNowError("it takes no writes at the moment") from error


async def _look(url: str, timeout: float, options: dict[str, Any]) -> tuple[int, Connection]:
    connection = await _connect(url, timeout, options)
    try:
        return await connection.fetchval(TIMELINE, timeout=timeout), connection
    except asyncpg.InsufficientPrivilegeError:
        return 0, connection
    except BaseException:
        connection.terminate()
        raise


def _answered(attempt: "asyncio.Future[tuple[int, Connection]]") -> bool:
    return attempt.done() and not attempt.cancelled() and attempt.exception() is None


async def _discard(tries: "Sequence[asyncio.Future[tuple[int, Connection]]]", *, but: int | None) -> None:
    for place, each in enumerate(tries):
        if place == but:
            continue
        each.cancel()
        if _answered(each):
            each.result()[1].terminate()
    await asyncio.gather(*(each for place, each in enumerate(tries) if place != but), return_exceptions=True)
