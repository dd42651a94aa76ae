"""One request to a receiver, and what its answer means."""

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from uuid import UUID

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from server.clock import now
from server.guard import Blocked, Inside, guarded
from server.observe import metrics, traces
from server.observe.traces import Kind, span
from server.webhooks.secrets import SigningKey

# In flight at once from one process. A receiver that hangs holds its own few places and nobody else's.
MOST_PER_RECEIVER = 16
MOST_PER_PROJECT = 48
HEADERS = {"content-type": "application/json", "user-agent": "Pilotlight-Webhooks", "accept-encoding": "identity"}
LONGEST_RETRY_AFTER = timedelta(days=1)

# The receiver is there and wants to be asked again.
LATER = frozenset({408, 425, 429})
GONE = 410


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `error` is None when the message has arrived."""

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
        """Whether sending it again is no use."""
        return self.is_gone or self.error in ("ADDRESS_NOT_ALLOWED", "INVALID_URL")

    @property
    def is_of_this_message(self) -> bool:
        """Whether the receiver is well and refuses this message: those behind it need not wait."""
        return self.http_status is not None and self.http_status < 500 and self.http_status not in LATER


class Sender:
    """One per process."""

    def __init__(
        self,
        *,
        timeout: timedelta,
        key: SigningKey | None,
        inside: Inside = Inside.OFF,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.key = key
        self._timeout = timeout.total_seconds()
        self._inside = inside
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._in_flight: Counter[tuple[UUID, str]] = Counter()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def place(self, project_id: UUID, url: str) -> Generator[bool]:
        """Whether there is room for one more to that receiver now."""
        keys = ((project_id, _origin(url)), (project_id, ""))
        most = (MOST_PER_RECEIVER, MOST_PER_PROJECT)
        if any(self._in_flight[key] >= limit for key, limit in zip(keys, most, strict=True)):
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

    async def send(self, url: str, body: str, headers: dict[str, str]) -> Answer:
        """POST it. Never raises; a redirect is an answer, and its body nobody reads."""
        began = time.perf_counter()
        with span("webhook.send", kind=Kind.CLIENT) as sending:
            # So that a receiver's own spans are part of the story. Not signed: it says nothing that matters.
            answer = await self._send(url, body, {**headers, **traces.headers()})
            sending.note(http_status=answer.http_status)
            if answer.error is not None:
                sending.fail(answer.error)
        metrics.WEBHOOKS.observe(time.perf_counter() - began, _outcome(answer))
        return answer

    async def _send(self, url: str, body: str, headers: dict[str, str]) -> Answer:
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._open().post(URL(url), data=body.encode(), headers=headers, allow_redirects=False) as response,
            ):
                return _meaning(response)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            return _sorted(error)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=guarded(self._inside, resolver=self._resolver),
                timeout=aiohttp.ClientTimeout(),  # each request has its own
                headers=HEADERS,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _outcome(answer: Answer) -> str:
    """One of few words: statuses by their first digit."""
    if answer.http_status is None:
        return answer.error or "DELIVERED"
    return "DELIVERED" if answer.is_delivered else f"HTTP_{answer.http_status // 100}XX"


def _meaning(response: aiohttp.ClientResponse) -> Answer:
    status = response.status
    if 200 <= status < 300:
        return Answer(status)
    message = "it redirected, which is not followed" if 300 <= status < 400 else f"it answered {status}"
    return Answer(status, f"HTTP_{status}", message, _retry_after(response.headers.get("retry-after")))


def _retry_after(value: str | None) -> timedelta | None:
    """Seconds, or a date."""
    if value is None:
        return None
    try:
        after = timedelta(seconds=int(value))
    except (ValueError, OverflowError):
        after = _until(value)
    return None if after is None else min(max(after, timedelta(0)), LONGEST_RETRY_AFTER)


def _until(value: str) -> timedelta | None:
    try:
        moment: datetime = parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError):
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - now()


def _sorted(error: BaseException) -> Answer:
    match error:
        case TimeoutError():
            return Answer(None, "TIMEOUT", "no answer in time")
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return Answer(None, "DNS", "its name is not known")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return Answer(None, "TLS", "no secure connection could be made")
        case aiohttp.ClientConnectorError(os_error=cause) if isinstance(cause, Blocked):
            return Answer(None, "ADDRESS_NOT_ALLOWED", "its address is not on the public internet")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return Answer(None, "INVALID_URL", "it is not a URL that can be connected to")
        case aiohttp.ClientConnectorError():
            return Answer(None, "NO_CONNECTION", "no connection could be made")
        case aiohttp.ClientResponseError():
            return Answer(None, "NOT_HTTP", "its answer is not HTTP as we know it")
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return Answer(None, "DISCONNECTED", "it broke the connection off")
        case _:
            return Answer(None, "NO_CONNECTION", f"no connection could be made ({type(error).__name__})")


def _origin(url: str) -> str:
    try:
        parsed = URL(url)
        return f"{parsed.scheme}://{parsed.raw_host}:{parsed.port}"
    except ValueError:
        return "?"
