"""The provider's HTTP face: authentication, faults, and one dispatch table."""

import asyncio
import re
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from server.novita.simulator import (
    routes_catalog,
    routes_changes,
    routes_images,
    routes_instances,
    routes_jobs,
    routes_network,
    routes_templates,
)
from server.novita.simulator.control import control_routes
from server.novita.simulator.faults import AFTER, BEFORE, Fault, FaultKind
from server.novita.simulator.wire import Call, Refusal, invalid_state
from server.novita.simulator.world import World

PREFIX = "/gpu-instance/openapi/v1"
LARGEST_BODY = 4 << 20
# Where the server puts the connection, so that a fault can cut it.
TRANSPORT = "simulator.transport"

Handler = Callable[[World, Call], bytes]

HANDLERS: dict[str, Handler] = {
    "GET /clusters": routes_catalog.clusters,
    "GET /products": routes_catalog.products,
    "GET /cpu/products": routes_catalog.cpu_products,
    "POST /gpu/instance/create": routes_instances.create,
    "GET /gpu/instances": routes_instances.page,
    "GET /gpu/instance": routes_instances.get,
    "POST /gpu/instance/start": routes_instances.start,
    "POST /gpu/instance/stop": routes_instances.stop,
    "POST /gpu/instance/restart": routes_instances.restart,
    "POST /gpu/instance/delete": routes_instances.delete,
    "POST /gpu/instance/edit": routes_changes.edit,
    "POST /gpu/instance/upgrade": routes_changes.upgrade,
    "POST /gpu/instance/migrate": routes_changes.migrate,
    "POST /gpu/instance/setAutoMigrate": routes_changes.set_auto_migrate,
    "POST /gpu/instance/renewInstance": routes_changes.renew,
    "POST /gpu/instance/transToMonthlyInstance": routes_changes.to_monthly,
    "GET /templates": routes_templates.templates,
    "GET /template": routes_templates.template,
    "POST /template/create": routes_templates.create_template,
    "POST /template/update": routes_templates.update_template,
    "POST /template/delete": routes_templates.delete_template,
    "GET /repository/auths": routes_templates.auths,
    "POST /repository/auth/save": routes_templates.save_auth,
    "POST /repository/auth/delete": routes_templates.delete_auth,
    "GET /networkstorages/list": routes_network.storages,
    "POST /networkstorage/create": routes_network.create_storage,
    "POST /networkstorage/update": routes_network.update_storage,
    "POST /networkstorage/delete": routes_network.delete_storage,
    "GET /networks": routes_network.networks,
    "GET /network": routes_network.network,
    "POST /network/create": routes_network.create_network,
    "POST /network/update": routes_network.update_network,
    "POST /network/delete": routes_network.delete_network,
    "GET /jobs": routes_jobs.jobs,
    "POST /job/save/image": routes_jobs.save_image,
    "POST /job/break": routes_jobs.break_job,
    "GET /image/prewarm/quota": routes_images.quota,
    "GET /image/prewarm": routes_images.prewarms,
    "POST /image/prewarm": routes_images.create_prewarm,
    "POST /image/prewarm/edit": routes_images.edit_prewarm,
    "POST /image/prewarm/delete": routes_images.delete_prewarms,
}
# One call lives under another prefix on the same host.
HOST_HANDLERS: dict[str, Handler] = {"GET /openapi/v1/metrics/gpu/instance": routes_images.metrics}

STATUS_FIELD = re.compile(rb'"status":"[A-Za-z]+"')
BAD_GATEWAY = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
JSON = b"application/json"


def create_app(world: World) -> Starlette:
    return Starlette(routes=[Mount("/control", routes=control_routes(world)), Mount("/", app=ProviderApi(world))])


class ProviderApi:
    """Each call is: faults before, one indivisible step of the world, faults after."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        if scope["type"] != "http":
            return
        name, handler = _find(scope["method"], scope["path"])
        self._world.calls[name if handler else "unknown"] += 1
        body = await exchange.body()
        if self._world.faults.active and await self._fails_before(name, exchange):
            return
        if handler is None:
            await exchange.answer(404, b"text/plain", b"404 page not found\n")
            return
        call = Call(name, scope["query_string"], body, _key(scope))
        try:
            self._check_key(call.key)
            self._world.settle()
            answer = handler(self._world, call)
        except Refusal as refusal:
            await exchange.answer(refusal.status, JSON, refusal.body())
            return
        finally:
            self._world.commit()
        if self._world.faults.active and (fault := self._world.faults.strike_one(name, AFTER)):
            await self._spoil(answer, fault, exchange)
            return
        await exchange.answer(200, JSON, answer)

    def _check_key(self, key: str) -> None:
        if not key:
            raise Refusal(401, "MISSING_API_KEY", "missing API key")
        if self._world.options.api_keys and key not in self._world.options.api_keys:
            raise Refusal(401, "INVALID_API_KEY", "invalid API key")

    async def _fails_before(self, name: str, exchange: "Exchange") -> bool:
        """True when the call was answered, or left unanswered, without the world hearing of it."""
        faults = self._world.faults
        for fault in faults.strike(name, frozenset({FaultKind.LATENCY})):
            await asyncio.sleep(faults.delay(fault))
        fault = faults.strike_one(name, BEFORE)
        if fault is None:
            return False
        match fault.kind:
            case FaultKind.RATE_LIMIT:
                await exchange.refuse(Refusal(429, "RATE_LIMIT_EXCEEDED", "rate limit exceeded"), fault.retry_after)
            case FaultKind.BAD_GATEWAY:
                await exchange.answer(502, b"text/html", BAD_GATEWAY)
            case FaultKind.GARBAGE:
                await exchange.answer(200, JSON, fault.body.encode())
            case FaultKind.HANG:
                await exchange.hang()
            case FaultKind.ERROR | FaultKind.OUTAGE if fault.answer_status:
                await exchange.refuse(Refusal(fault.answer_status, fault.reason, fault.message), fault.retry_after)
            case _:
                await exchange.drop()
        return True

    async def _spoil(self, answer: bytes, fault: Fault, exchange: "Exchange") -> None:
        """The work is done and written down; only the caller's view of it suffers."""
        match fault.kind:
            case FaultKind.CUT_JSON:
                await exchange.answer(200, JSON, answer[: len(answer) // 2])
            case FaultKind.CUT_CONNECTION:
                await exchange.cut(answer)
            case FaultKind.ERROR_AFTER if fault.answer_status:
                await exchange.refuse(Refusal(fault.answer_status, fault.reason, fault.message), fault.retry_after)
            case FaultKind.HANG_AFTER:
                await exchange.hang()
            case FaultKind.INVALID_STATE_AFTER:
                await exchange.refuse(invalid_state())
            case FaultKind.UNKNOWN_STATUS:
                word = b'"status":"%b"' % fault.word.encode()
                await exchange.answer(200, JSON, STATUS_FIELD.sub(lambda _: word, answer))
            case _:
                await exchange.drop()


class Exchange:
    """One request and its answer, or the lack of one."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send

    async def body(self) -> bytes:
        message = await self._receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body") and len(body) <= LARGEST_BODY:
            message = await self._receive()
            body += message.get("body", b"")
        return body

    async def answer(self, status: int, kind: bytes, body: bytes, retry_after: str | None = None) -> None:
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        if retry_after is not None:
            headers.append((b"retry-after", retry_after.encode("latin-1")))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal, retry_after: str | None = None) -> None:
        await self.answer(refusal.status, JSON, refusal.body(), retry_after)

    async def hang(self) -> None:
        """Say nothing until the caller goes away (or the simulator stops and cuts the connection)."""
        message: Message = {}
        while message.get("type") != "http.disconnect":
            message = await self._receive()

    async def drop(self) -> None:
        self._abort()
        await self.hang()

    async def cut(self, body: bytes) -> None:
        """Promise a whole body, send half of it."""
        headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
        transport: asyncio.Transport | None = self._scope.get(TRANSPORT)  # uvloop's is of another class
        if transport is not None:
            # Not abort: what was written must arrive first.
            transport.close()
        await self.hang()

    def _abort(self) -> None:
        transport: asyncio.Transport | None = self._scope.get(TRANSPORT)
        if transport is not None:
            transport.abort()


def _find(method: str, path: str) -> tuple[str, Handler | None]:
    if path.startswith(PREFIX):
        name = f"{method} {path[len(PREFIX) :]}"
        return name, HANDLERS.get(name)
    name = f"{method} {path}"
    return name, HOST_HANDLERS.get(name)


def _key(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            return key.strip() if scheme.lower() == "bearer" else ""
    return ""
