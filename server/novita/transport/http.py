"""Sends one HTTP request; every failure becomes a NovitaError here."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import quote

import aiohttp
import orjson
from aiohttp import hdrs
from pydantic import SecretStr
from yarl import URL

from server import __version__
from server.errors import NovitaError, ProviderError, ProviderTimeout, ProviderUnreachable
from server.novita.transport.errors import error_from_response
from server.novita.transport.request import PREFIX, ApiCall

BODY_MAX = 32 * 1024 * 1024  # bytes; a page of 100 instances is about 0.2 MB
CONNECT_TIMEOUT = 10.0  # seconds for a new connection, TLS included
WORLD_HEADER = "X-Simulator-World"  # on every response of a simulator, on none of the real provider
KEEP_ALIVE_TIMEOUT = 15.0  # seconds; gateways may close an older idle connection just as a request is sent


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response with a status of 200 to 299."""

    status: int
    body: bytes = field(repr=False)  # may hold passwords
    world_id: str | None = None  # of the simulator that sent it


class NotConnected(ProviderUnreachable):
    """No connection was made: the request was not sent, so nothing happened."""

    is_certain_refusal = True


class ClientClosed(NotConnected):
    """Our client was closed or never opened: not the provider's failure, and a retry does not help."""


class DeadlinePassed(NotConnected):
    """The call is too old to be sent."""


class ResponseTooLarge(ProviderError):
    """The response exceeds BODY_MAX; a retry would only fetch it again."""


class HttpClient:
    """The pooled HTTP session. The pool has no limit: RouteSlots limits the concurrent calls."""

    def __init__(self, base_url: str, api_key: SecretStr, timeout: timedelta) -> None:
        self._host = base_url.rstrip("/").removesuffix(PREFIX)
        self._api_key = api_key
        total = timeout.total_seconds()
        self._timeout = aiohttp.ClientTimeout(total=total, sock_connect=min(CONNECT_TIMEOUT, total / 2))
        self._session: aiohttp.ClientSession | None = None
        # Called with the status and the simulated world of each response, before anything acts on it.
        self.check_sender: Callable[[int, str | None], None] | None = None

    def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_TIMEOUT),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Authorization": f"Bearer {self._api_key.get_secret_value()}",
                "Content-Type": "application/json",
                "User-Agent": f"pilotlight/{__version__}",
            },
        )

    async def close(self) -> None:
        session, self._session = self._session, None  # first: no call may begin while the session closes
        if session is not None:
            await session.close()

    async def send(self, call: ApiCall, *, checks_sender: bool = True) -> HttpResponse:
        """Send it once. Raises only NovitaError, never with aiohttp's exception attached: that holds the request's
        headers, and so the API key."""
        failure: NovitaError
        try:
            status, body, headers = await self._exchange(call)
            world_id = headers.get(WORLD_HEADER)
            if checks_sender and self.check_sender is not None:
                self.check_sender(status, world_id)
        except NovitaError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a hostile response makes aiohttp raise is the provider's failure
            failure = _to_novita_error(error)
        else:
            if 200 <= status < 300:
                return HttpResponse(status, body, world_id)
            failure = error_from_response(
                status,
                body,
                retry_after=headers.get(hdrs.RETRY_AFTER),
                secrets=(self._api_key, *call.secrets),
                subject=call.subject,
            )
            body = b""  # tracebacks may show this frame's local variables, and a body may echo a secret
        raise failure

    async def _exchange(self, call: ApiCall) -> tuple[int, bytes, Mapping[str, str]]:
        if self._session is None:
            raise ClientClosed("the client is not open")
        # Redirects are not followed: they would send the API key to another host.
        async with self._session.request(
            call.method,
            self._url(call),
            data=None if call.body is None else orjson.dumps(call.body),
            allow_redirects=False,
        ) as response:
            return response.status, await _read(response), response.headers

    def _url(self, call: ApiCall) -> URL:
        address = self._host + call.prefix + call.path
        # Quoted here and marked as encoded: yarl's way of adding a query costs a tenth of a whole call.
        query = "&".join([f"{name}={quote(value, safe='')}" for name, value in call.query])
        return URL(f"{address}?{query}" if query else address, encoded=True)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The decompressed body; raises ResponseTooLarge."""
    headers = response.headers
    if hdrs.CONTENT_ENCODING not in headers and hdrs.TRANSFER_ENCODING not in headers:
        length = response.content_length
        if length is not None and length <= BODY_MAX:
            return await response.read()  # the parser reads no further than the length
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > BODY_MAX:
            raise ResponseTooLarge(f"the response is larger than {BODY_MAX} bytes", status=response.status)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _to_novita_error(error: Exception) -> NovitaError:
    """NotConnected only if nothing was sent: a create decides by it whether a machine may exist."""
    name = type(error).__name__
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return NotConnected(f"no connection to Novita ({name})")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return NotConnected("the address of Novita is not a URL")
        case asyncio.TimeoutError():
            return ProviderTimeout("no response from Novita in time")
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | OSError():
            return ProviderUnreachable(f"the connection to Novita broke ({name})")
        case _:
            return ProviderError(f"the response is not valid HTTP ({name})")
