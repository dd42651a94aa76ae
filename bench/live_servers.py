"""The servers that bench/live.py compares, each in its own process."""

import asyncio
import gc
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psutil
import structlog
import uvicorn
import uvloop
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from strawberry.asgi import GraphQL

from schema.context import Context, Services
from schema.root import schema
from schema.types.event import InstanceEvent
from server.auth.caller import Caller
from server.config import Settings
from server.http.listener import address_of, bind
from server.http.serve import serve_http
from server.runtime import Runtime

PROTOCOL = "graphql-transport-ws"


class Roomy(Settings):
    """Raises the limits: only this bench opens so many subscriptions with one token."""

    sockets_per_token: int = 100_000
    operations_per_token: int = 100_000
    socket_ping_interval: timedelta = timedelta(hours=1)
    request_rate_limit: int = 0
    request_rate_limit_per_project: int = 0


async def main(kind: str, url: str, token: str) -> None:
    # Standard output is for the bench.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    settings = Roomy(host="127.0.0.1", port=0)
    runtime = Runtime(settings, database_url=url, novita_url="http://127.0.0.1:1", novita_key=SecretStr("sk_bench"))
    async with runtime:
        runtime.follow_events()
        await runtime.seals.load()
        caller = await runtime.tokens.caller_of(token)
        assert caller is not None
        listener = bind("127.0.0.1", 0)
        how = {"ours": ours, "strawberry": strawberry_as_it_comes, "bare": bare_broadcast}[kind]
        async with how(runtime, listener, caller) as service:
            say({"address": address_of(listener)})
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            while await reader.readline():
                gc.collect()
                process = psutil.Process()
                times = process.cpu_times()
                say(
                    {
                        "rss": process.memory_info().rss,
                        "cpu": times.user + times.system,
                        "tasks": len(asyncio.all_tasks()),
                        "broadcasts": len(service.broadcasts) if service else 0,
                        "subscriptions": service.broadcasts.subscribers if service else 0,
                        "connections": len(service.connections.open) if service else 0,
                        "subscribers": runtime.tail.subscribers,
                    }
                )


def say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


@asynccontextmanager
async def ours(runtime: Runtime, listener: Any, caller: Caller) -> AsyncIterator[Any]:
    async with serve_http(runtime, listener) as app:
        yield app.state.service


@asynccontextmanager
async def strawberry_as_it_comes(runtime: Runtime, listener: Any, caller: Caller) -> AsyncIterator[Any]:
    """Its own view and its own handling of sockets, with the same resolvers: a generator for each client."""
    services = Services(
        **{name: getattr(runtime, name) for name in Services.__dataclass_fields__ if hasattr(runtime, name)}
    )

    class View(GraphQL[Context, None]):
        async def get_context(self, request: Any, response: Any) -> Context:
            context = Context(services, request_id="bench", is_socket=True)
            context.admit(caller)
            return context

    view = View(schema, subscription_protocols=(PROTOCOL,))
    async with served(Starlette(routes=[WebSocketRoute("/graphql", view)]), listener):
        yield None


@asynccontextmanager
async def bare_broadcast(runtime: Runtime, listener: Any, caller: Caller) -> AsyncIterator[Any]:
    """The same bytes, made once and sent to each socket in turn: no GraphQL, no ids, no protocol."""
    sockets: set[WebSocket] = set()

    async def endpoint(socket: WebSocket) -> None:
        await socket.accept(subprotocol=PROTOCOL)
        sockets.add(socket)
        try:
            while True:
                await socket.receive_text()
        except WebSocketDisconnect:
            sockets.discard(socket)

    async def broadcast() -> None:
        async with runtime.tail.subscribe(project_id=caller.project_id, after=None, backlog=100_000) as events:
            async for event in events:
                shown = InstanceEvent.of(event, cursor=runtime.cursors.of_event(events.cursor_of(event)))
                text = as_text(shown)
                for socket in list(sockets):
                    await socket.send_text(text)

    sending = asyncio.create_task(broadcast())
    async with served(Starlette(routes=[WebSocketRoute("/graphql", endpoint)]), listener):
        yield None
    sending.cancel()


def as_text(event: InstanceEvent) -> str:
    """What the bench's subscription asks for."""
    instance = event.instance_snapshot
    assert instance is not None
    asked = {"id": event.id, "cursor": event.cursor, "type": event.type, "occurredAt": event.occurred_at.isoformat()}
    asked["status"] = event.status  # pyright: ignore[reportArgumentType]
    nested = {name: getattr(instance, name) for name in ("name", "status", "version", "image")}
    snapshot = {"instanceId": instance.instance_id, **nested}
    payload = {"data": {"instanceEvents": {**asked, "instanceSnapshot": snapshot}}}
    return json.dumps({"id": "00000000-0000-0000-0000-000000000000", "type": "next", "payload": payload})


@asynccontextmanager
async def served(app: Starlette, listener: Any) -> AsyncIterator[None]:
    config = uvicorn.Config(
        app,
        log_config=None,
        lifespan="off",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_ping_interval=None,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield
    server.should_exit = True
    await task


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
