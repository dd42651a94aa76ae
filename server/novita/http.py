"""One request over the wire: everything that can go wrong becomes one of our errors here."""

import asyncio
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
from server.novita.call import PREFIX, Call
from server.novita.meaning import error_of

LARGEST_BODY = 32 * 1024 * 1024  # bytes; a page of 100 instances is about 0.2 MB
CONNECT_TIMEOUT = 10.0  # seconds for a new connection, TLS included
KEEP_ALIVE = 15.0  # seconds; idle connections older than that are what gateways close under a request


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of 200 to 299."""

    status: int
    body: bytes = field(repr=False)  # may hold passwords


class NotConnected(ProviderUnreachable):
    """No connection came about: the request never left, so nothing happened."""

    is_certain_refusal = True


class ClientClosed(NotConnected):
    """Our own client was closed, or never opened: no fault of the provider's, and nothing to wait for."""


class TooLate(NotConnected):
    """It was decided on so long ago that it must not be sent any more."""


class TooLarge(ProviderError):
    """The answer is larger than any answer should be; asking again would only fetch it again."""


class Http:
    """The one pooled session. How many calls run at once is not decided here: the pool has no limit of its own."""

    def __init__(self, base_url: str, api_key: SecretStr, timeout: timedelta) -> None:
        self._host = base_url.rstrip("/").removesuffix(PREFIX)
        self._api_key = api_key
        total = timeout.total_seconds()
        self._timeout = aiohttp.ClientTimeout(total=total, sock_connect=min(CONNECT_TIMEOUT, total / 2))
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Authorization": f"Bearer {self._api_key.get_secret_value()}",
                "Content-Type": "application/json",
                "User-Agent": f"pilotlight/{__version__}",
            },
        )

    async def close(self) -> None:
        session, self._session = self._session, None  # first, so that no call begins while the session closes
        if session is not None:
            await session.close()

    async def send(self, call: Call) -> Answer:
        """Send it once. Raises nothing but NovitaError, and never with the library's own exception attached: those
        carry the request's headers, and with them the key."""
        fault: NovitaError
        try:
            status, body, retry_after = await self._exchange(call)
        except NovitaError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a hostile answer makes the library raise is the provider's fault
            fault = _fault_of(error)
        else:
            if 200 <= status < 300:
                return Answer(status, body)
            fault = error_of(status, body, retry_after=retry_after, secrets=(self._api_key, *call.secrets))
            body = b""  # a traceback that shows local variables shows this frame's, and a body may echo a secret
        raise fault

    async def _exchange(self, call: Call) -> tuple[int, bytes, str | None]:
        if self._session is None:
            raise ClientClosed("the client is not open")
        # A redirect is not followed: it would carry the key to wherever the answer says.
        async with self._session.request(
            call.method,
            self._url(call),
            data=None if call.body is None else orjson.dumps(call.body),
            allow_redirects=False,
        ) as response:
            return response.status, await _read(response), response.headers.get(hdrs.RETRY_AFTER)

    def _url(self, call: Call) -> URL:
        address = self._host + call.prefix + call.path
        # Quoted here, and told so: the library's own way of adding a query costs a tenth of a whole call.
        query = "&".join([f"{name}={quote(value, safe='')}" for name, value in call.query])
        return URL(f"{address}?{query}" if query else address, encoded=True)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, decompressed, unless it is larger than any body should be."""
    headers = response.headers
    if hdrs.CONTENT_ENCODING not in headers and hdrs.TRANSFER_ENCODING not in headers:
        length = response.content_length
        if length is not None and length <= LARGEST_BODY:
            return await response.read()  # the parser reads no further than the length
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > LARGEST_BODY:
            raise TooLarge(f"the answer is larger than {LARGEST_BODY} bytes", status=response.status)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _fault_of(error: Exception) -> NovitaError:
    """Whether anything had been sent is what matters to whoever asked for something to be made."""
    name = type(error).__name__
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return NotConnected(f"no connection to Novita ({name})")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return NotConnected("the address of Novita is not a URL")
        case asyncio.TimeoutError():
            return ProviderTimeout("no answer from Novita in time")
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | OSError():
            return ProviderUnreachable(f"the connection to Novita broke ({name})")
        case _:
            return ProviderError(f"the answer is not HTTP ({name})")
