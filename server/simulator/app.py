"""The provider's HTTP API: authentication, faults and the table of routes."""

import asyncio
import re
import time
from collections.abc import Callable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from server.simulator.control_api import control_routes
from server.simulator.dialect import NotFound
from server.simulator.faults import FAULTS_AFTER, FAULTS_BEFORE, Fault, FaultKind
from server.simulator.requests import ApiRequest, InvalidState, ProviderRefusal
from server.simulator.routes import billing, catalog, changes, images, instances, jobs, network, templates
from server.simulator.world import World

PREFIX = "/gpu-instance/openapi/v1"
BODY_MAX = 4 << 20
# The scope key of the connection, so that a fault can cut it.
TRANSPORT_KEY = "simulator.transport"

Handler = Callable[[World, ApiRequest], bytes]

HANDLERS: dict[str, Handler] = {
    "GET /clusters": catalog.clusters,
    "GET /products": catalog.products,
    "GET /cpu/products": catalog.cpu_products,
    "POST /gpu/instance/create": instances.create,
    "GET /gpu/instances": instances.page,
    "GET /gpu/instance": instances.get,
    "POST /gpu/instance/start": instances.start,
    "POST /gpu/instance/stop": instances.stop,
    "POST /gpu/instance/restart": instances.restart,
    "POST /gpu/instance/delete": instances.delete,
    "POST /gpu/instance/edit": changes.edit,
    "POST /gpu/instance/upgrade": changes.upgrade,
    "POST /gpu/instance/migrate": changes.migrate,
    "POST /gpu/instance/setAutoMigrate": changes.set_auto_migrate,
    "POST /gpu/instance/renewInstance": changes.renew,
    "POST /gpu/instance/transToMonthlyInstance": changes.to_monthly,
    "GET /templates": templates.templates,
    "GET /template": templates.template,
    "POST /template/create": templates.create_template,
    "POST /template/update": templates.update_template,
    "POST /template/delete": templates.delete_template,
    "GET /repository/auths": templates.auths,
    "POST /repository/auth/save": templates.save_auth,
    "POST /repository/auth/delete": templates.delete_auth,
    "GET /networkstorages/list": network.storages,
    "POST /networkstorage/create": network.create_storage,
    "POST /networkstorage/update": network.update_storage,
    "POST /networkstorage/delete": network.delete_storage,
    "GET /networks": network.networks,
    "GET /network": network.network,
    "POST /network/create": network.create_network,
    "POST /network/update": network.update_network,
    "POST /network/delete": network.delete_network,
    "GET /jobs": jobs.jobs,
    "POST /job/save/image": jobs.save_image,
    "POST /job/break": jobs.break_job,
    "GET /image/prewarm/quota": images.quota,
    "GET /image/prewarm": images.prewarms,
    "POST /image/prewarm": images.create_prewarm,
    "POST /image/prewarm/edit": images.edit_prewarm,
    "POST /image/prewarm/delete": images.delete_prewarms,
}
# Calls with other prefixes.
HOST_HANDLERS: dict[str, Handler] = {
    "GET /openapi/v1/metrics/gpu/instance": images.metrics,
    "GET /openapi/v1/billing/balance/detail": billing.balance,
    "GET /openapi/v1/billing/bill/list": billing.usage_bills,
    "GET /openapi/v1/billing/bill/monthly/list": billing.fixed_term_bills,
}

STATUS_FIELD = re.compile(rb'"status":"[A-Za-z]+"')
JSON = b"application/json"
HTML = b"text/html"
# Calls whose body is a matter of dialect.
VERBS = frozenset(
    {
        "POST /gpu/instance/start",
        "POST /gpu/instance/stop",
        "POST /gpu/instance/restart",
        "POST /gpu/instance/delete",
        "POST /gpu/instance/edit",
        "POST /gpu/instance/upgrade",
        "POST /gpu/instance/migrate",
        "POST /repository/auth/save",
    }
)
# Responses with these statuses have no body.
WITHOUT_BODY = frozenset({204, 304})


def create_app(world: World) -> Starlette:
    return Starlette(routes=[Mount("/control", routes=control_routes(world)), Mount("/", app=ProviderApi(world))])


class ProviderApi:
    """Each request runs: faults before, the handler as one atomic step, faults after."""

    def __init__(self, world: World) -> None:
        self._world = world
        # On every response, so that a client knows at any moment which world it talks to.
        self._headers = [] if world.options.is_anonymous else [(b"x-simulator-world", world.id.encode())]
        self._minute = 0
        self._calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, headers=self._headers)
        if scope["type"] != "http":
            return
        name, handler = _find(scope["method"], scope["path"])
        self._world.calls[name if handler else "unknown"] += 1
        body = await exchange.body()
        if self._world.faults.active and await self._fail_before(name, exchange):
            return
        if handler is None:
            await exchange.respond(404, b"text/plain", b"404 page not found\n")
            return
        if not self._count_call():
            await self._refuse(exchange, ProviderRefusal(429, "RATE_LIMIT_EXCEEDED", "rate limit exceeded"))
            return
        request = ApiRequest(name, scope["query_string"], body, _key(scope))
        try:
            self._check_key(request.key)
            self._world.advance()
            response = handler(self._world, request)
        except ProviderRefusal as refusal:
            await self._refuse(exchange, refusal)
            return
        finally:
            self._world.commit()
        if self._world.faults.active and (fault := self._world.faults.match_first(name, FAULTS_AFTER)):
            await self._fail_after(response, fault, exchange)
            return
        status, response = self._world.dialect.verb_answer(response) if name in VERBS else (200, response)
        await exchange.respond(status, JSON, response)

    def _check_key(self, key: str) -> None:
        if not key:
            raise ProviderRefusal(401, "MISSING_API_KEY", "missing API key")
        if self._world.options.api_keys and key not in self._world.options.api_keys:
            raise ProviderRefusal(401, "INVALID_API_KEY", "invalid API key")

    async def _fail_before(self, name: str, exchange: "Exchange") -> bool:
        """True if a fault ended the request before the handler."""
        faults = self._world.faults
        for fault in faults.match_all(name, frozenset({FaultKind.LATENCY})):
            await asyncio.sleep(faults.delay(fault))
        fault = faults.match_first(name, FAULTS_BEFORE)
        if fault is None:
            return False
        match fault.kind:
            case FaultKind.RATE_LIMIT:
                refusal = ProviderRefusal(429, "RATE_LIMIT_EXCEEDED", "rate limit exceeded")
                await self._refuse(exchange, refusal, fault.retry_after)
            case FaultKind.BAD_GATEWAY:
                await self._respond_page(exchange, fault.answer_status, fault.retry_after)
            case FaultKind.GARBAGE:
                await exchange.respond(fault.status or 200, JSON, fault.body.encode())
            case FaultKind.HANG:
                await exchange.hang()
            case FaultKind.ERROR | FaultKind.OUTAGE if fault.answer_status:
                refusal = ProviderRefusal(fault.answer_status, fault.reason, fault.message)
                await self._refuse(exchange, refusal, fault.retry_after)
            case _:
                await exchange.drop()
        return True

    def _count_call(self) -> bool:
        """False if this minute's calls are used up, by the dialect's limit."""
        if not self._world.dialect.rate_limit:
            return True
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._calls = minute, 0
        self._calls += 1
        return self._calls <= self._world.dialect.rate_limit

    async def _refuse(self, exchange: "Exchange", refusal: ProviderRefusal, retry_after: str | None = None) -> None:
        """Send an error in the words of the dialect."""
        dialect = self._world.dialect
        if refusal.status == 404 and dialect.not_found is NotFound.HTML:
            await self._respond_page(exchange, 404, retry_after)
            return
        if isinstance(refusal, InvalidState):
            refusal = ProviderRefusal(dialect.invalid_state_status, dialect.invalid_state_reason, refusal.message)
        await exchange.respond(refusal.status, JSON, refusal.body(), self._retry_after(refusal.status, retry_after))

    async def _respond_page(self, exchange: "Exchange", status: int, retry_after: str | None) -> None:
        """An error as a gateway in front of the API sends it."""
        title = f"{status} {HTTPStatus(status).phrase}"
        page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
        await exchange.respond(status, HTML, page.encode(), self._retry_after(status, retry_after))

    def _retry_after(self, status: int, of_fault: str | None) -> str | None:
        return self._world.dialect.retry_after if of_fault is None and status in (429, 503) else of_fault

    async def _fail_after(self, response: bytes, fault: Fault, exchange: "Exchange") -> None:
        """The change is done and stored; only the response is broken."""
        match fault.kind:
            case FaultKind.CUT_JSON:
                await exchange.respond(200, JSON, response[: len(response) // 2])
            case FaultKind.CUT_CONNECTION:
                await exchange.cut(response)
            case FaultKind.ERROR_AFTER if fault.answer_status:
                refusal = ProviderRefusal(fault.answer_status, fault.reason, fault.message)
                await self._refuse(exchange, refusal, fault.retry_after)
            case FaultKind.HANG_AFTER:
                await exchange.hang()
            case FaultKind.INVALID_STATE_AFTER:
                await self._refuse(exchange, InvalidState())
            case FaultKind.UNKNOWN_STATUS:
                word = b'"status":"%b"' % fault.word.encode()
                await exchange.respond(200, JSON, STATUS_FIELD.sub(lambda _: word, response))
            case _:
                await exchange.drop()


class Exchange:
    """One request and its response, which a fault may withhold."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, headers: list[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._scope = scope
        self._receive = receive
        self._send = send

    async def body(self) -> bytes:
        message = await self._receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body") and len(body) <= BODY_MAX:
            message = await self._receive()
            body += message.get("body", b"")
        return body

    async def respond(self, status: int, kind: bytes, body: bytes, retry_after: str | None = None) -> None:
        headers = list(self._headers)
        if status in WITHOUT_BODY:
            body = b""
        else:
            headers += [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        if retry_after is not None:
            headers.append((b"retry-after", retry_after.encode("latin-1")))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def hang(self) -> None:
        """Send nothing until the client disconnects, or the simulator stops and cuts the connection."""
        message: Message = {}
        while message.get("type") != "http.disconnect":
            message = await self._receive()

    async def drop(self) -> None:
        self._abort()
        await self.hang()

    async def cut(self, body: bytes) -> None:
        """Announce the whole body, send half of it."""
        headers = [*self._headers, (b"content-type", JSON), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
        transport: asyncio.Transport | None = self._scope.get(TRANSPORT_KEY)  # uvloop has its own class
        if transport is not None:
            # Not abort: the written half must arrive.
            transport.close()
        await self.hang()

    def _abort(self) -> None:
        transport: asyncio.Transport | None = self._scope.get(TRANSPORT_KEY)
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
