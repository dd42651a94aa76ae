"""Sends webhooks over HTTP, and the retry schedule."""

import asyncio
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from server.clock import parse_retry_after
from server.observe import job_origin, metrics
from server.observe.tracing import Kind, span
from server.ssrf import AddressBlocked, PrivateAddresses, guarded_connector
from server.webhooks.signing import SigningKey

# Nearly a day in all: a receiver that was down over night misses nothing.
RETRY_DELAYS = tuple(
    timedelta(seconds=seconds) for seconds in (5, 15, 60, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 28_800)
)
RETRY_AGE_MAX = timedelta(days=1)
JITTER = 0.1


def retry_delay(counted: int, *, age: timedelta, retry_after: timedelta | None = None) -> timedelta | None:
    """Time to the next attempt after that many failures; None to give up.

    The age counts, too: a message that waited a day behind a failing one is attempted once, not for another day.
    """
    if counted > len(RETRY_DELAYS) or age >= RETRY_AGE_MAX:
        return None
    delay = RETRY_DELAYS[counted - 1] * random.uniform(1 - JITTER, 1 + JITTER)
    return min(max(delay, retry_after or timedelta(0)), RETRY_AGE_MAX)


# Concurrent requests of one process. A receiver that hangs blocks only its own slots.
IN_FLIGHT_PER_RECEIVER_MAX = 16
IN_FLIGHT_PER_PROJECT_MAX = 48
HEADERS = {"content-type": "application/json", "user-agent": "Pilotlight-Webhooks", "accept-encoding": "identity"}
RETRY_AFTER_MAX = timedelta(days=1)

# Below 500, but the receiver asks for a retry.
RETRYABLE_STATUSES = frozenset({408, 425, 429})
GONE = 410


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Result of one attempt. `error` is None if the message was delivered."""

    http_status: int | None = None
    error: str | None = None
    message: str | None = None
    retry_after: timedelta | None = None

    @property
    def is_delivered(self) -> bool:
        return self.error is None

    @property
    def is_gone(self) -> bool:
        return self.http_status == GONE

    @property
    def is_final(self) -> bool:
        """Whether a retry can't help."""
        return self.is_gone or self.error in ("ADDRESS_NOT_ALLOWED", "INVALID_URL")

    @property
    def is_message_rejected(self) -> bool:
        """Whether the receiver works but refuses this message: later messages need not wait."""
        return self.http_status is not None and self.http_status < 500 and self.http_status not in RETRYABLE_STATUSES


class Sender:
    """Sends webhooks; one per process."""

    def __init__(
        self,
        *,
        timeout: timedelta,
        key: SigningKey | None,
        private_addresses: PrivateAddresses = PrivateAddresses.OFF,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.key = key
        self._timeout = timeout.total_seconds()
        self._private_addresses = private_addresses
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._in_flight: Counter[tuple[UUID, str]] = Counter()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def reserve_slot(self, project_id: UUID, url: str) -> Generator[bool]:
        """Reserve a slot for one request; yields False if receiver or project has none left."""
        keys = ((project_id, _origin(url)), (project_id, ""))
        limits = (IN_FLIGHT_PER_RECEIVER_MAX, IN_FLIGHT_PER_PROJECT_MAX)
        if any(self._in_flight[key] >= limit for key, limit in zip(keys, limits, strict=True)):
            yield False
            return
        self._in_flight.update(keys)
        try:
            yield True
        finally:
            for key in keys:
                self._in_flight[key] -= 1
                if not self._in_flight[key]:
                    del self._in_flight[key]

    async def send(self, url: str, body: str, headers: dict[str, str]) -> DeliveryResult:
        """POST it. Never raises; redirects are not followed, bodies are not read."""
        began = time.perf_counter()
        with span("webhook.send", kind=Kind.CLIENT) as sending:
            # They connect the receiver's logs and spans with ours. Not signed: they are not important.
            result = await self._send(url, body, {**headers, **job_origin.outgoing_headers()})
            sending.note(http_status=result.http_status)
            if result.error is not None:
                sending.fail(result.error)
        metrics.WEBHOOKS.observe(time.perf_counter() - began, _outcome(result))
        return result

    async def _send(self, url: str, body: str, headers: dict[str, str]) -> DeliveryResult:
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._open().post(URL(url), data=body.encode(), headers=headers, allow_redirects=False) as response,
            ):
                return _result_of_response(response)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            return _result_of_error(error)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=guarded_connector(self._private_addresses, resolver=self._resolver),
                timeout=aiohttp.ClientTimeout(),  # each request has its own
                headers=HEADERS,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _outcome(result: DeliveryResult) -> str:
    """Metric label; statuses are grouped by their first digit."""
    if result.http_status is None:
        return result.error or "DELIVERED"
    return "DELIVERED" if result.is_delivered else f"HTTP_{result.http_status // 100}XX"


def _result_of_response(response: aiohttp.ClientResponse) -> DeliveryResult:
    status = response.status
    if 200 <= status < 300:
        return DeliveryResult(status)
    message = "redirects are not followed" if 300 <= status < 400 else f"HTTP status {status}"
    retry_after = parse_retry_after(response.headers.get("retry-after"), limit=RETRY_AFTER_MAX)
    return DeliveryResult(status, f"HTTP_{status}", message, retry_after)


def _result_of_error(error: BaseException) -> DeliveryResult:
    match error:
        case TimeoutError():
            return DeliveryResult(None, "TIMEOUT", "no response in time")
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return DeliveryResult(None, "DNS", "the host name is unknown")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return DeliveryResult(None, "TLS", "the TLS handshake failed")
        case aiohttp.ClientConnectorError(os_error=cause) if isinstance(cause, AddressBlocked):
            return DeliveryResult(None, "ADDRESS_NOT_ALLOWED", "the address is not on the public internet")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return DeliveryResult(None, "INVALID_URL", "the URL is invalid")
        case aiohttp.ClientConnectorError():
            return DeliveryResult(None, "NO_CONNECTION", "no connection")
        case aiohttp.ClientResponseError():
            return DeliveryResult(None, "NOT_HTTP", "the response is not valid HTTP")
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return DeliveryResult(None, "DISCONNECTED", "the receiver closed the connection")
        case _:
            return DeliveryResult(None, "NO_CONNECTION", f"no connection ({type(error).__name__})")


def _origin(url: str) -> str:
    try:
        parsed = URL(url)
        return f"{parsed.scheme}://{parsed.raw_host}:{parsed.port}"
    except ValueError:
        return "?"
