"""Sends one probe to one endpoint. Whatever the endpoint does is an outcome, not an exception."""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from server.observe import metrics
from server.observe.tracing import Kind, span
from server.probes.error_pages import find_error_phrase
from server.probes.plan import CheckPlan, ProbeTarget
from server.probes.problems import ErrorKind, error_kind_of_status
from server.ssrf import AddressBlocked, PrivateAddresses, checked_socket_factory, guarded_connector

BODY_MAX = 64 * 1024
REDIRECTS_MAX = 5
MESSAGE_MAX = 300
HEADERS = {"user-agent": "pilotlight-health-check", "accept": "*/*", "accept-encoding": "identity"}

ERRORS_BY_ERRNO = {
    errno.ECONNREFUSED: (ErrorKind.CONNECTION_REFUSED, "connection refused"),
    errno.ECONNRESET: (ErrorKind.CONNECTION_RESET, "connection reset"),
    errno.EPIPE: (ErrorKind.CONNECTION_RESET, "connection reset"),
    errno.ECONNABORTED: (ErrorKind.CONNECTION_RESET, "connection reset"),
    errno.ETIMEDOUT: (ErrorKind.TIMEOUT, "no response in time"),
}


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """Result of one probe. `error` is None if the endpoint is healthy; `message` is for people."""

    target: ProbeTarget
    latency: timedelta
    http_status: int | None = None
    error: ErrorKind | None = None
    message: str | None = None

    @property
    def is_healthy(self) -> bool:
        return self.error is None


class _Unhealthy(Exception):
    """Ends a probe as unhealthy."""

    def __init__(self, error: ErrorKind, message: str, http_status: int | None = None) -> None:
        super().__init__(message)
        self.error, self.message, self.http_status = error, message, http_status


class Prober:
    """Sends probes. Connections are not reused: each probe acts like a new client.

    The provider's endpoints are on the public internet; only the simulator's are on loopback.
    """

    def __init__(
        self,
        *,
        private_addresses: PrivateAddresses | Callable[[], PrivateAddresses] = PrivateAddresses.OFF,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._private_addresses = private_addresses
        self._resolver = resolver
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    def _allowed(self) -> PrivateAddresses:
        return self._private_addresses() if callable(self._private_addresses) else self._private_addresses

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def probe(self, target: ProbeTarget, plan: CheckPlan, *, within: timedelta | None = None) -> ProbeOutcome:
        """GET an http endpoint, connect to a tcp one. Never raises. `within` shortens the plan's timeout."""
        with span(f"probe {target.type}", kind=Kind.CLIENT, port=target.port) as probing:
            outcome = await self._probe(target, plan, within)
            probing.note(http_status=outcome.http_status, outcome=outcome.error or "HEALTHY")
        metrics.PROBES.observe(outcome.latency.total_seconds(), target.type, outcome.error or "HEALTHY")
        return outcome

    async def _probe(self, target: ProbeTarget, plan: CheckPlan, within: timedelta | None) -> ProbeOutcome:
        seconds = min(plan.timeout, within or plan.timeout).total_seconds()
        began = time.perf_counter()
        status: int | None = None
        try:
            if target.address is None:
                raise _Unhealthy(ErrorKind.UNREACHABLE, "the provider has not assigned an address yet")
            async with asyncio.timeout(seconds):
                status = await (
                    self._get(target.address, plan) if target.type == "http" else self._connect(target.address)
                )
        except _Unhealthy as result:
            return ProbeOutcome(target, _since(began), result.http_status, result.error, result.message[:MESSAGE_MAX])
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            kind, message = _classify(error)
            return ProbeOutcome(target, _since(began), None, kind, message)
        return ProbeOutcome(target, _since(began), status)

    async def _get(self, address: str, plan: CheckPlan) -> int:
        url = _url(address, plan.path)
        for _ in range(REDIRECTS_MAX + 1):
            async with self._open().get(url, allow_redirects=False) as response:
                status = response.status
                onward = None if status in plan.expected_statuses else _redirect_target(response, url)
                if onward is None:
                    if not plan.expects(status):
                        raise _Unhealthy(error_kind_of_status(status), f"HTTP status {status}", status)
                    await _read_healthy(response)
                    return status
                url = onward
        raise _Unhealthy(ErrorKind.SERVER_ERROR, f"more than {REDIRECTS_MAX} redirects")

    async def _connect(self, address: str) -> None:
        """Open a connection and close it again."""
        parts = urlsplit(f"//{address.partition('://')[2] or address}")
        if not parts.hostname or not parts.port:
            raise _Unhealthy(ErrorKind.UNREACHABLE, "the address is not host:port")
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
        make = checked_socket_factory(self._allowed())
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
                connector=guarded_connector(self._allowed(), resolver=self._resolver, tls=self._tls),
                timeout=aiohttp.ClientTimeout(),  # each probe has its own
                headers=HEADERS,
                auto_decompress=False,  # a few bytes must not become gigabytes
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _url(address: str, path: str | None) -> URL:
    """The endpoint's address, with this path instead of its own. Raises _Unhealthy if that would be another host."""
    base = URL(address if "://" in address else f"https://{address}")
    if path is None:
        return base
    # Not `join`, which reads a path that begins with two slashes as a host.
    url = URL(f"{base.origin()}{path}", encoded=True)
    if url.origin() != base.origin():
        raise _Unhealthy(ErrorKind.UNREACHABLE, "the path leads to another host")
    return url


def _redirect_target(response: aiohttp.ClientResponse, url: URL) -> URL | None:
    """The target of a redirect on the same host; None otherwise: redirects to other hosts are not followed."""
    location = response.headers.get("location")
    if not 300 <= response.status < 400 or not location:
        return None
    try:
        onward = url.join(URL(location))
    except ValueError:
        return None
    is_same_host = onward.scheme in ("http", "https") and onward.host == url.host and onward.user is None
    is_same_port = onward.port == url.port or (url.port, onward.port) == (80, 443)
    return onward if is_same_host and is_same_port else None


async def _read_healthy(response: aiohttp.ClientResponse) -> None:
    """Read the body up to BODY_MAX; raises _Unhealthy if it is an error page."""
    body = bytearray()
    while len(body) < BODY_MAX:
        chunk = await response.content.read(BODY_MAX - len(body))
        if not chunk:
            break
        body += chunk
    if response.headers.get("content-encoding", "identity") != "identity":
        return
    phrase = find_error_phrase(bytes(body), response.headers.get("content-type", "").lower())
    if phrase is not None and 200 <= response.status < 300:
        message = f'HTTP status {response.status}, but the body says "{phrase}"'
        raise _Unhealthy(ErrorKind.BODY_ERROR, message, response.status)


def _classify(error: BaseException) -> tuple[ErrorKind, str]:
    """The error kind and message of an exception."""
    match error:
        case TimeoutError():
            return ErrorKind.TIMEOUT, "no response in time"
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return ErrorKind.DNS, "the host name is unknown"
        case aiohttp.ClientSSLError() | ssl.SSLError() | aiohttp.ClientConnectorCertificateError():
            return ErrorKind.TLS, f"TLS failed: {_tls_reason(error)}"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return ErrorKind.CONNECTION_RESET, "connection reset"
        case aiohttp.ClientResponseError():
            return ErrorKind.SERVER_ERROR, "the response is not valid HTTP"
        case aiohttp.ClientConnectorError(os_error=cause) if isinstance(cause, AddressBlocked):
            return ErrorKind.UNREACHABLE, str(cause.strerror)
        case OSError(errno=number) if number in ERRORS_BY_ERRNO:
            return ERRORS_BY_ERRNO[number]
        case AddressBlocked():
            return ErrorKind.UNREACHABLE, str(error.strerror)
        case _:
            return ErrorKind.UNREACHABLE, f"no connection ({type(error).__name__})"


def _tls_reason(error: BaseException) -> str:
    """OpenSSL's message without the position in its source."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or type(cause).__name__)[:200]


def _since(began: float) -> timedelta:
    return timedelta(seconds=time.perf_counter() - began)
