"""The logs of a machine, read from the addresses that the provider gives, and never stored.

What such an address serves is not documented: this file takes it to be plain text that grows, and asks for parts of it
with the Range header. A server that ignores the header sends all, of which at most MAX_BYTES are read.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import aiohttp

from server.auth.caller import Caller
from server.db.tables import InstanceLike
from server.errors import ProviderError, ProviderTimeout, ProviderUnreachable
from server.instances.provider.live_reads import FETCH_TIMEOUT, fetch_for_user
from server.instances.provider.reader import ProviderReader
from server.ssrf import PrivateAddresses, guarded_connector

MAX_BYTES = 1024 * 1024
HEADERS = {"user-agent": "pilotlight-log", "accept": "text/plain, */*", "accept-encoding": "identity"}


class LogKind(StrEnum):
    """Which log of a machine."""

    CONTAINER = "CONTAINER"
    SYSTEM = "SYSTEM"


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some text of a log. `begin` and `end` count bytes from the log's beginning."""

    text: str
    begin: int
    end: int

    def last_lines(self, count: int) -> "LogPart":
        kept = "".join(self.text.splitlines(keepends=True)[-count:])[-MAX_BYTES:]
        return LogPart(kept, max(0, self.end - len(kept.encode())), self.end)


class LogReader:
    """Reads log addresses. They come from the provider, so only public addresses are connected to."""

    def __init__(self, private_addresses: Callable[[], PrivateAddresses]) -> None:
        self._private_addresses = private_addresses
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def read_end(self, address: str) -> LogPart:
        """The last part of the log, at most MAX_BYTES."""
        return await self._read(address, f"bytes=-{MAX_BYTES}", 0)

    async def read_from(self, address: str, begin: int) -> LogPart:
        """What the log has after `begin`. A part that begins earlier is of a log that was begun anew."""
        return await self._read(address, f"bytes={begin}-", begin)

    async def _read(self, address: str, wanted: str, begin: int) -> LogPart:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT.total_seconds()):
                async with self._open().get(address, headers={"range": wanted}, max_redirects=3) as response:
                    return await _part(response, begin)
        except TimeoutError:
            raise ProviderTimeout("the log takes too long") from None
        except (aiohttp.ClientError, OSError, ValueError):
            # Without the cause: its text has the address, which may carry a token.
            raise ProviderUnreachable("the log's address can't be read") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = guarded_connector(self._private_addresses())
            self._session = aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=False)
        return self._session


async def log_address(reader: ProviderReader, instance: InstanceLike, which: LogKind, *, by: Caller) -> str | None:
    """Where the provider serves the log now; None without a machine or a log. Raises NovitaError, TooManyLiveReads."""
    remote = await fetch_for_user(instance, partial(reader.fetch, by=by), what="say where the log is")
    if remote is None or remote.logs is None:
        return None
    return remote.logs.instance_address if which is LogKind.CONTAINER else remote.logs.system_address


async def _part(response: aiohttp.ClientResponse, begin: int) -> LogPart:
    if response.status == 416:  # nothing behind `begin`; or the log is shorter and was begun anew
        total = _total(response)
        return LogPart("", begin, begin) if total is None or total >= begin else LogPart("", 0, 0)
    if response.status == 404:
        return LogPart("", 0, 0)
    if response.status >= 400:
        raise ProviderError(f"the log's address responds with {response.status}")
    data = b""
    while len(data) < MAX_BYTES and (chunk := await response.content.read(MAX_BYTES - len(data))):
        data += chunk
    if response.status == 206:
        begin = _start(response, begin)
    else:
        data, begin = (data[begin:], begin) if begin <= len(data) else (data, 0)
    return LogPart(data.decode("utf-8", "replace"), begin, begin + len(data))


def _start(response: aiohttp.ClientResponse, default: int) -> int:
    """N of `Content-Range: bytes N-M/total`."""
    first = response.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdigit() else default


def _total(response: aiohttp.ClientResponse) -> int | None:
    total = response.headers.get("content-range", "").rpartition("/")[2]
    return int(total) if total.isdigit() else None
