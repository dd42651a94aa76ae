"""Helpers for tests of the provider client: a clock that tests advance, and a provider with scripted responses."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import orjson
from pydantic import SecretStr

from server.novita.client import NovitaClient
from server.novita.transport.retry import RetryPolicy

KEY = "sk_test_5f1c9e7ab2"

DROP = b"DROP"  # close without a response
HANG = b"HANG"  # send nothing


class SkippingClock:
    """Sleeping advances the clock at once; the waits are recorded."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


class HeldClock:
    """The clock stands until the test advances it."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        await settle()
        self.time += seconds + 1e-9
        due = [each for each in self._sleepers if each[0] <= self.time]
        self._sleepers = [each for each in self._sleepers if each[0] > self.time]
        for _, woken in due:
            if not woken.done():
                woken.set_result(None)
        await settle()


async def settle() -> None:
    """Run all ready tasks."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class ScriptedProvider:
    """Sends these responses in order, the last one repeatedly; a callable gets the request."""

    answers: list[bytes | Callable[[Request], bytes]]
    requests: list[Request] = field(default_factory=list[Request])
    url: str = ""
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await settle()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                answer = self._answer(await _request(reader))
                if answer == HANG:
                    await reader.read()
                    return
                if answer == DROP:
                    return
                writer.write(answer)
                await writer.drain()
                if b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._open.discard(writer)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    def _answer(self, request: Request) -> bytes:
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        return answer(request) if callable(answer) else answer


def provider(*answers: bytes | Callable[[Request], bytes]) -> ScriptedProvider:
    return ScriptedProvider(list(answers))


def answer(status: int, body: object = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """A whole HTTP response; anything but bytes is sent as JSON."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(raw)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def refusal(status: int, reason: str = "", message: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    return answer(status, {"code": status, "reason": reason, "message": message, "metadata": {}}, headers)


def client_of(url: str, **options: Any) -> NovitaClient:
    """A client without a rate limit, whose jitter is always the whole wait and whose waits take no time."""
    options.setdefault("rate_limit_per_minute", 0)
    options.setdefault("clock", SkippingClock())
    options.setdefault("retry", RetryPolicy(random=lambda: 1.0))
    options.setdefault("request_timeout", timedelta(seconds=10))
    return NovitaClient(base_url=url, api_key=options.pop("api_key", SecretStr(KEY)), **options)


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
