"""A receiver of webhooks that hangs, resets connections or responds with errors for a while."""

import asyncio
import base64
import hashlib
import hmac
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class FaultyReceiver:
    """Records the bodies received for each id, and whether they were signed with the right secret."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.secret = ""
        self.url = ""
        self.bodies: defaultdict[str, set[bytes]] = defaultdict(set)
        self.taken: Counter[str] = Counter()  # by id, those that were answered with 200
        self.arrivals: list[str] = []  # ids, in the order in which each was first answered with 200
        self.unsigned: list[str] = []

    async def hear(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        id = request.headers["webhook-id"]
        self.bodies[id].add(hashlib.sha256(body).digest())
        if not self._is_signed(request, id, body):
            self.unsigned.append(id)
        match self.mode:
            case "hang":
                await asyncio.sleep(4)
                return web.Response(status=503)
            case "reset":
                if request.transport is not None:
                    request.transport.abort()
                return web.Response(status=503)
            case "500" | "429" as status:
                return web.Response(status=int(status), headers={"retry-after": "1"})
            case _:
                if not self.taken[id]:
                    self.arrivals.append(id)
                self.taken[id] += 1
                return web.Response(status=200)

    def _is_signed(self, request: web.Request, id: str, body: bytes) -> bool:
        signed = f"{id}.{request.headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(self.secret.removeprefix("whsec_"))
        right = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        return f"v1,{right}" in request.headers["webhook-signature"].split()

    async def for_a_while(self, mode: str, seconds: float) -> None:
        self.mode = mode
        try:
            await asyncio.sleep(seconds)
        finally:
            self.mode = "ok"


@asynccontextmanager
async def receiving() -> AsyncIterator[FaultyReceiver]:
    receiver = FaultyReceiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.hear)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()
