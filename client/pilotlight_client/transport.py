"""Requests and streams over HTTP, repeated where that is safe."""

import asyncio
import json
import logging
import os
import random
from collections.abc import AsyncIterator
from typing import Any, Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from pilotlight_client.connection import Server
from pilotlight_client.errors import REQUEST_ERRORS, RequestFailed, Unauthenticated, Unreachable

PAUSE, PAUSE_MAX = 0.25, 10.0
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=75, connect=10)
# A quiet stream gets a comment every 25 s; without one for a minute, the connection is dead.
STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=10, sock_read=60)
NOT_THERE = (404, 405, 410)
LOST = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)

log = logging.getLogger(__name__)


class StreamCut(Exception):
    """The stream ended before it was complete: subscribe again."""


class Executor(Protocol):
    """What a client sends its documents through."""

    async def execute(
        self, document: str, variables: dict[str, Any], *, is_repeatable: bool = True
    ) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class Transport:
    """One pooled connection to one server."""

    def __init__(self, server: Server, *, retry_for: float) -> None:
        self.server = server
        self._retry_for = retry_for
        self._session: aiohttp.ClientSession | None = None

    async def execute(self, document: str, variables: dict[str, Any], *, is_repeatable: bool = True) -> dict[str, Any]:
        """The data of a query or mutation.

        A request whose answer got lost is sent again only if it is repeatable: a query, or a mutation with an
        idempotency key. One that did not reach the server, or that it says it did not execute, always is.
        """
        deadline = asyncio.get_running_loop().time() + self._retry_for
        attempt = 0
        while True:
            attempt += 1
            pause = min(PAUSE * 2**attempt, PAUSE_MAX) * random.uniform(0.5, 1.0)
            try:
                return data_of(await self._post(document, variables))
            except RequestFailed as failed:
                if not failed.is_retryable or (failed.code != "RATE_LIMITED" and not is_repeatable):
                    raise
                pause, problem = max(pause, failed.retry_after), failed
            except LOST as lost:
                problem = Unreachable(f"no response from {self.server.url}: {_reason(lost)}")
                if not is_repeatable and not isinstance(lost, aiohttp.ClientConnectorError):
                    raise problem from lost
            left = deadline - asyncio.get_running_loop().time()
            if pause > left:
                raise problem
            if attempt == 1 and isinstance(problem, Unreachable):
                log.warning("%s; trying again for %.0f s", problem, left)
            await asyncio.sleep(pause)

    async def stream(self, document: str, variables: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The data of each message of a subscription, until it is complete; StreamCut if it ended before."""
        body = {"query": document, "variables": variables}
        headers = {**self._headers(), "accept": "text/event-stream"}
        try:
            async with self._connection().post(
                self.server.url, json=body, headers=headers, timeout=STREAM_TIMEOUT
            ) as response:
                if response.content_type != "text/event-stream":
                    data_of(await _json(response))
                    raise StreamCut("the server did not send a stream")
                async for kind, message in _server_sent(response.content):
                    if kind == "complete":
                        return
                    if kind == "next":
                        yield data_of(json.loads(message))
        except LOST as lost:
            raise StreamCut(_reason(lost)) from lost
        raise StreamCut("the server ended the stream")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _post(self, document: str, variables: dict[str, Any]) -> dict[str, Any]:
        body = {"query": document, "variables": variables}
        async with self._connection().post(
            self.server.url, json=body, headers=self._headers(), timeout=REQUEST_TIMEOUT
        ) as response:
            return await _json(response)

    def _connection(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Not trust_env: it refuses our header for hosts that ~/.netrc has a password for.
            self._session = aiohttp.ClientSession(proxy=_proxy_of(self.server.url))
        return self._session

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.server.token}"}


class Pauses:
    """Waits between tries of a stream: growing while nothing arrives, short again after a message."""

    def __init__(self, retry_for: float) -> None:
        self._retry_for = retry_for
        self.reset()

    def reset(self) -> None:
        self._attempt, self._failing_since = 0, None

    async def wait(self, problem: Exception) -> None:
        """Sleep before the next try; raises Unreachable once nothing has arrived for too long."""
        now = asyncio.get_running_loop().time()
        self._failing_since: float | None = self._failing_since or now
        if now - self._failing_since > self._retry_for:
            raise Unreachable(f"the stream could not be resumed: {problem}") from problem
        self._attempt += 1
        await asyncio.sleep(min(PAUSE * 2**self._attempt, PAUSE_MAX) * random.uniform(0.5, 1.0))


def _reason(lost: Exception) -> str:
    """In words; the host may be that of a proxy."""
    if isinstance(lost, aiohttp.ClientConnectorError):
        number, text = lost.os_error.errno, lost.os_error.strerror
        why = os.strerror(number) if number and number > 0 else text or str(lost.os_error)
        return f"can't connect to {lost.host}:{lost.port} ({why})"
    return str(lost) or type(lost).__name__


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment names for this address."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


async def _json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The body as JSON; a proxy's page counts as a lost response."""
    try:
        body = await response.json(content_type=None)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        if response.status in (401, 403):
            raise Unauthenticated("UNAUTHENTICATED", f"HTTP {response.status}")
        if response.status in NOT_THERE:
            raise Unreachable(f"{response.url} is not the address of a Pilotlight server: HTTP {response.status}")
        raise aiohttp.ClientPayloadError(f"HTTP {response.status} without a GraphQL response")
    return cast("dict[str, Any]", body)


def data_of(body: dict[str, Any]) -> dict[str, Any]:
    """The data of a GraphQL response; its errors are raised."""
    errors: list[dict[str, Any]] = body.get("errors") or []
    if not errors:
        return body["data"]
    # With several errors, the one that a retry does not help decides.
    worst = min(errors, key=lambda error: bool(error.get("extensions", {}).get("retryable")))
    extensions = worst.get("extensions", {})
    code = extensions.get("code", "UNKNOWN")
    failed = REQUEST_ERRORS.get(code, RequestFailed)(
        code,
        worst.get("message", ""),
        is_retryable=bool(extensions.get("retryable")),
        request_id=extensions.get("requestId"),
        retry_after=(extensions.get("retryAfterMs") or 0) / 1000,
    )
    raise failed


async def _server_sent(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, str]]:
    """The events of a stream: kind and data."""
    kind, data = "message", list[str]()
    async for raw in _lines(content):
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data or kind != "message":
                yield kind, "\n".join(data)
            kind, data = "message", []
        elif line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; the reader's own limit is 64 KiB."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
