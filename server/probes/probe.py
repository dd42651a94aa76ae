"""One probe of one endpoint, and what it found. Nothing that an endpoint does is an error of ours."""

import asyncio
import errno
import socket
import ssl
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from server.guard import Blocked, Inside, guarded, sockets
from server.observe import metrics
from server.observe.traces import Kind, span
from server.probes.body import error_in
from server.probes.kinds import ErrorKind, kind_of_status
from server.probes.plan import Plan, Target

MAX_BODY = 64 * 1024
MOST_REDIRECTS = 5
LONGEST_MESSAGE = 300
HEADERS = {"user-agent": "pilotlight-health-check", "accept": "*/*", "accept-encoding": "identity"}

BY_ERRNO = {
    errno.ECONNREFUSED: (ErrorKind.CONNECTION_REFUSED, "nothing listens there"),
    errno.ECONNRESET: (ErrorKind.CONNECTION_RESET, "it broke the connection off"),
    errno.EPIPE: (ErrorKind.CONNECTION_RESET, "it broke the connection off"),
    errno.ECONNABORTED: (ErrorKind.CONNECTION_RESET, "it broke the connection off"),
    errno.ETIMEDOUT: (ErrorKind.TIMEOUT, "no answer in time"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe found. `error` is None when the endpoint is healthy; `message` is for people."""

    target: Target
    latency: timedelta
    http_status: int | None = None
    error: ErrorKind | None = None
    message: str | None = None

    @property
    def is_healthy(self) -> bool:
        return self.error is None


class _Unhealthy(Exception):
    """What was found, on its way out."""

    def __init__(self, error: ErrorKind, message: str, http_status: int | None = None) -> None:
        super().__init__(message)
        self.error, self.message, self.http_status = error, message, http_status


class Prober:
    """Sends probes. A connection is never kept for the next one: each probe stands for a new visitor.

    Endpoints come from the provider, so they are on the public internet; only the simulator's are on loopback.
    """

    def __init__(
        self,
        *,
        inside: Inside = Inside.OFF,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._inside = inside
        self._resolver = resolver
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def probe(self, target: Target, plan: Plan, *, within: timedelta | None = None) -> Finding:
        """GET it, or connect to it. Never raises. `within` shortens the plan's own time."""
        with span(f"probe {target.type}", kind=Kind.CLIENT, port=target.port) as probing:
            finding = await self._probe(target, plan, within)
            probing.note(http_status=finding.http_status, outcome=finding.error or "HEALTHY")
        metrics.PROBES.observe(finding.latency.total_seconds(), target.type, finding.error or "HEALTHY")
        return finding

    async def _probe(self, target: Target, plan: Plan, within: timedelta | None) -> Finding:
        seconds = min(plan.timeout, within or plan.timeout).total_seconds()
        began = time.perf_counter()
        status: int | None = None
        try:
            if target.address is None:
                raise _Unhealthy(ErrorKind.UNREACHABLE, "the provider has given it no address yet")
            async with asyncio.timeout(seconds):
                status = await (
                    self._get(target.address, plan) if target.type == "http" else self._connect(target.address)
                )
        except _Unhealthy as found:
            return Finding(target, _since(began), found.http_status, found.error, found.message[:LONGEST_MESSAGE])
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            kind, message = _sorted(error)
            return Finding(target, _since(began), None, kind, message)
        return Finding(target, _since(began), status)

    async def _get(self, address: str, plan: Plan) -> int:
        url = _url(address, plan.path)
        for _ in range(MOST_REDIRECTS + 1):
            async with self._open().get(url, allow_redirects=False) as response:
                status = response.status
                onward = None if status in plan.expected_statuses else _onward(response, url)
                if onward is None:
                    if not plan.expects(status):
                        raise _Unhealthy(kind_of_status(status), f"it answered {status}", status)
                    await _read_healthy(response)
                    return status
                url = onward
        raise _Unhealthy(ErrorKind.SERVER_ERROR, f"it redirected more than {MOST_REDIRECTS} times")

    async def _connect(self, address: str) -> None:
        """Open a connection and close it again."""
        parts = urlsplit(f"//{address.partition('://')[2] or address}")
        if not parts.hostname or not parts.port:
            raise _Unhealthy(ErrorKind.UNREACHABLE, "its address is not host:port")
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
        make = sockets(self._inside)
        for place, info in enumerate(infos):
            try:
                with closing(make(info)) as connection:
                    connection.setblocking(False)
                    await loop.sock_connect(connection, info[4])
                    return
            except OSError:
                if place == len(infos) - 1:
                    raise

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=guarded(self._inside, resolver=self._resolver, tls=self._tls),
                timeout=aiohttp.ClientTimeout(),  # each probe has its own
                headers=HEADERS,
                auto_decompress=False,  # a few bytes must not become gigabytes in here
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _url(address: str, path: str | None) -> URL:
    base = address if "://" in address else f"https://{address}"
    url = URL(base)
    if path is None:
        return url
    return url.join(URL(path, encoded=True))


def _onward(response: aiohttp.ClientResponse, url: URL) -> URL | None:
    """Where a redirect leads, as long as that is the same host; elsewhere is not ours to go."""
    location = response.headers.get("location")
    if not 300 <= response.status < 400 or not location:
        return None
    try:
        onward = url.join(URL(location))
    except ValueError:
        return None
    is_here = onward.scheme in ("http", "https") and onward.host == url.host and onward.user is None
    is_same_door = onward.port == url.port or (url.port, onward.port) == (80, 443)
    return onward if is_here and is_same_door else None


async def _read_healthy(response: aiohttp.ClientResponse) -> None:
    """Read what it says, up to a bound, and believe it if it says that it is an error."""
    body = bytearray()
    while len(body) < MAX_BODY:
        chunk = await response.content.read(MAX_BODY - len(body))
        if not chunk:
            break
        body += chunk
    if response.headers.get("content-encoding", "identity") != "identity":
        return
    phrase = error_in(bytes(body), response.headers.get("content-type", "").lower())
    if phrase is not None and 200 <= response.status < 300:
        raise _Unhealthy(ErrorKind.BODY_ERROR, f'it answered {response.status} and says "{phrase}"', response.status)


def _sorted(error: BaseException) -> tuple[ErrorKind, str]:
    """What an exception of the way there means."""
    match error:
        case TimeoutError():
            return ErrorKind.TIMEOUT, "no answer in time"
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return ErrorKind.DNS, "its name is not known"
        case aiohttp.ClientSSLError() | ssl.SSLError() | aiohttp.ClientConnectorCertificateError():
            return ErrorKind.TLS, f"TLS failed: {_why(error)}"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return ErrorKind.CONNECTION_RESET, "it broke the connection off"
        case aiohttp.ClientResponseError():
            return ErrorKind.SERVER_ERROR, "its answer is not HTTP as we know it"
        case aiohttp.ClientConnectorError(os_error=cause) if isinstance(cause, Blocked):
            return ErrorKind.UNREACHABLE, str(cause.strerror)
        case OSError(errno=number) if number in BY_ERRNO:
            return BY_ERRNO[number]
        case Blocked():
            return ErrorKind.UNREACHABLE, str(error.strerror)
        case _:
            return ErrorKind.UNREACHABLE, f"no connection ({type(error).__name__})"


def _why(error: BaseException) -> str:
    """OpenSSL's own words, without the place in its source."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or type(cause).__name__)[:200]


def _since(began: float) -> timedelta:
    return timedelta(seconds=time.perf_counter() - began)
