"""A webhook receiver that verifies signatures with the official library and responds as configured."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from aiohttp import web
from standardwebhooks import Webhook


@dataclass
class ReceivedWebhook:
    """One request as it arrived."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def message(self) -> dict[str, Any]:
        return orjson.loads(self.body)

    @property
    def type(self) -> str:
        return self.message["type"]


Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Receiver:
    """`answers` are used up one by one; then every request gets 204."""

    url: str = ""
    got: list[ReceivedWebhook] = field(default_factory=list[ReceivedWebhook])
    answers: list[int | Respond] = field(default_factory=list["int | Respond"])
    always: int = 204
    headers: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def types(self) -> list[str]:
        return [each.type for each in self.got]

    def verify(self, secret: str) -> list[dict[str, Any]]:
        """Everything that came, checked with the library."""
        return [Webhook(secret).verify(each.body, each.headers) for each in self.got]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.got.append(
            ReceivedWebhook({name.lower(): value for name, value in request.headers.items()}, await request.read())
        )
        answer = self.answers.pop(0) if self.answers else self.always
        if isinstance(answer, int):
            return web.Response(status=answer, headers=self.headers)
        return await answer(request)


async def hang(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def started(receiver: Receiver) -> web.AppRunner:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}/hook"
    return runner


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    runner = await started(receiver)
    try:
        yield receiver
    finally:
        await runner.cleanup()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver
