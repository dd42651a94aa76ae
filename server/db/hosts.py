"""Connects to the primary among several hosts, also during a failover."""

import asyncio
import contextlib
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode

import asyncpg
import structlog
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from server.db.outages import DATABASE_ERRORS
from server.db.timeouts import RawConnection
from server.errors import StartupProblem

log = structlog.get_logger(__name__)

CONNECT_TIMEOUT = timedelta(seconds=10)
OTHER_HOSTS_TIMEOUT = timedelta(milliseconds=500)  # after the first response; a dead machine never responds
PRIMARY_TTL = timedelta(seconds=2)  # while a pool opens connections, only one host is tried

# Every promotion starts a new timeline: of two servers that both take writes, the one with the lower timeline was
# demoted and does not know it yet.
TIMELINE = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"


@dataclass(frozen=True, slots=True)
class _OpenConnection:
    """A connection and its host. It belongs to the event loop that opened it."""

    connection: "weakref.ref[RawConnection]"
    loop: asyncio.AbstractEventLoop
    url: str


class PrimaryConnector:
    """The hosts of one URL; connects only to the one that takes writes.

    It is used from several threads (a lease is renewed on its own thread), so it has no asyncio lock.
    """

    def __init__(self, url: str) -> None:
        self._urls = split_hosts(url)
        self._primary: str | None = None
        self._primary_until = 0.0
        self._open: set[_OpenConnection] = set()

    @property
    def has_several(self) -> bool:
        return len(self._urls) > 1

    async def connect(self, *, timeout: float | None = None, **options: Any) -> RawConnection:
        """A connection to the primary; without one, raises the last host's error."""
        timeout = CONNECT_TIMEOUT.total_seconds() if timeout is None else timeout
        if not self.has_several:
            return await _connect(self._urls[0], timeout, options)
        if self._primary is not None and time.monotonic() < self._primary_until:
            with contextlib.suppress(*DATABASE_ERRORS):
                return self._track(await _connect(self._primary, timeout, options), self._primary)
            self._primary_until = 0.0
        return await self._connect_to_newest(timeout, options)

    async def check_primary(self) -> None:
        """Find out whether another server was promoted, and disconnect from the demoted one, which may not know."""
        if not self.has_several:
            return
        with contextlib.suppress(*DATABASE_ERRORS):
            connection = await self._connect_to_newest(CONNECT_TIMEOUT.total_seconds(), {})
            connection.terminate()

    async def _connect_to_newest(self, timeout: float, options: dict[str, Any]) -> RawConnection:
        tries = [asyncio.ensure_future(_connect_and_read_timeline(url, timeout, options)) for url in self._urls]
        waiting = set(tries)
        try:
            while waiting:
                has_response = any(_succeeded(each) for each in tries)
                # Until a first success each attempt has only its own timeout.
                limit = OTHER_HOSTS_TIMEOUT.total_seconds() if has_response else None
                done, waiting = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
        except BaseException:
            await _discard(tries, but=None)
            raise
        timelines = [(each.result()[0], index) for index, each in enumerate(tries) if _succeeded(each)]
        newest = max(timelines)[1] if timelines else None
        await _discard(tries, but=newest)
        if newest is None:
            errors = [error for each in tries if not each.cancelled() and (error := each.exception())]
            raise errors[-1] if errors else TimeoutError("no database host responded")
        self._set_primary(self._urls[newest])
        return self._track(tries[newest].result()[1], self._urls[newest])

    def _set_primary(self, url: str) -> None:
        changed = self._primary is not None and url != self._primary
        self._primary, self._primary_until = url, time.monotonic() + PRIMARY_TTL.total_seconds()
        if not changed:
            return
        log.warning("database.moved")
        for opened in list(self._open):
            connection = opened.connection()
            if opened.url != url and connection is not None:
                # Reads would continue there and return ever older data.
                with contextlib.suppress(RuntimeError):  # its event loop has ended, and the connection with it
                    opened.loop.call_soon_threadsafe(connection.terminate)

    def _track(self, connection: RawConnection, url: str) -> RawConnection:
        self._open = {
            opened for opened in self._open if (known := opened.connection()) is not None and not known.is_closed()
        }
        self._open.add(_OpenConnection(weakref.ref(connection), asyncio.get_running_loop(), url))
        return connection


async def _connect(url: str, timeout: float, options: dict[str, Any]) -> RawConnection:
    attributes = {} if "target_session_attrs=" in url else {"target_session_attrs": "read-write"}
    try:
        return await asyncpg.connect(url, timeout=timeout, **attributes, **options)
    except asyncpg.TargetServerAttributeNotMatched as error:
        # The error of a server that is starting, which all callers already handle.
        raise asyncpg.CannotConnectNowError("the server takes no writes at the moment") from error


async def _connect_and_read_timeline(url: str, timeout: float, options: dict[str, Any]) -> tuple[int, RawConnection]:
    connection = await _connect(url, timeout, options)
    try:
        return await connection.fetchval(TIMELINE, timeout=timeout), connection
    except asyncpg.InsufficientPrivilegeError:
        return 0, connection
    except BaseException:
        connection.terminate()
        raise


def _succeeded(attempt: "asyncio.Future[tuple[int, RawConnection]]") -> bool:
    return attempt.done() and not attempt.cancelled() and attempt.exception() is None


async def _discard(tries: "Sequence[asyncio.Future[tuple[int, RawConnection]]]", *, but: int | None) -> None:
    for index, each in enumerate(tries):
        if index == but:
            continue
        each.cancel()
        if _succeeded(each):
            each.result()[1].terminate()
    await asyncio.gather(*(each for index, each in enumerate(tries) if index != but), return_exceptions=True)


SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")


def driver_url(url: str) -> str:
    """The URL in the form that asyncpg accepts. Refuses other databases."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise StartupProblem("DATABASE_URL must start with postgresql://")
    return f"postgresql://{rest}"


def split_hosts(url: str) -> list[str]:
    """One URL per host of a URL that names several: `one:5432,two:5432`, or `?host=one&host=two`."""
    whole = driver_url(url)
    rest, _, query = whole.removeprefix("postgresql://").partition("?")
    authority, slash, name = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    options = parse_qsl(query, keep_blank_values=True)
    host_options = [server for key, value in options if key == "host" for server in value.split(",")]
    ports = [port for key, value in options if key == "port" for port in value.split(",")]
    if not hosts and host_options and not any(server.startswith("/") for server in host_options):
        options = [(key, value) for key, value in options if key not in ("host", "port")]
        hosts = ",".join(_with_port(server, ports, index) for index, server in enumerate(host_options))
    if "," not in hosts and not host_options:
        return [whole]
    query = f"?{urlencode(options)}" if options else ""
    return [f"postgresql://{user}{at}{server}{slash}{name}{query}" for server in hosts.split(",")]


def redacted(url: str) -> str:
    """The URL for messages, with its password hidden."""
    try:
        urls = split_hosts(url)
        public_urls = [make_url(each).render_as_string(hide_password=True) for each in urls]
        hosts = [each.partition("?")[0].rpartition("@")[2].partition("/")[0] for each in urls]
        return public_urls[0].replace(hosts[0], ",".join(hosts), 1) if len(urls) > 1 else public_urls[0]
    except (ArgumentError, ValueError):
        return "the database"


def _with_port(server: str, ports: list[str], index: int) -> str:
    """Ports are one for all hosts, or one for each."""
    if not ports or ":" in server.rpartition("]")[2]:
        return server
    return f"{server}:{ports[index] if index < len(ports) else ports[-1]}"
