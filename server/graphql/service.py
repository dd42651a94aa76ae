"""GraphQLService: documents, rate limits, connections and running operations of one process."""

import asyncio
import contextlib
import contextvars
import os
import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, TypeVar

import structlog
from graphql import ExecutionResult, GraphQLError, OperationType
from strawberry import Schema

from schema.context import Services
from schema.error_masking import public_errors, to_graphql_error
from server.auth.caller import Caller
from server.auth.rate_limit import RateLimiter
from server.auth.tokens import bearer_secret
from server.db.outages import is_database_unavailable
from server.graphql.documents.core_types import core_of
from server.graphql.documents.document import Document, Operation
from server.graphql.documents.store import DocumentStore
from server.graphql.execution.execute import InvalidVariables
from server.graphql.live.broadcasts import Broadcasts
from server.graphql.live.connections import Connections
from server.graphql.live.subscriber import Errors, Subscriber
from server.graphql.request import Request
from server.graphql.respond import COST_PER_REQUEST, GraphQLResult, Responder
from server.observe import job_origin
from server.observe.http_requests import ERROR, OK, RequestObservation

log = structlog.get_logger(__name__)

T = TypeVar("T")

VALIDATION_COST = 10  # requests; validating a document that is not cached is as much work
TOKEN_TTL = timedelta(seconds=1)
MUTATIONS_TIMEOUT = timedelta(seconds=5)  # for mutations that run when the process stops


class GraphQLService:
    """Connections add and remove themselves; the keeper task runs while there is one."""

    def __init__(self, schema: Schema, services: Services) -> None:
        self._schema = schema
        self._services = services
        self.settings = services.settings
        self.connections = Connections(self.settings)
        self.documents = DocumentStore.of(core_of(schema), services.settings)
        self.rate_limiter = RateLimiter(
            per_token=self.settings.request_rate_limit, per_project=self.settings.request_rate_limit_per_project
        )
        self.broadcasts = Broadcasts(schema, services)
        self.responder = Responder(schema, services, self.documents.limits.cost, self.rate_limiter, self._run_mutation)
        self.is_stopping = False
        self._authenticating: dict[bytes, asyncio.Future[Caller | None]] = {}
        self._running: dict[asyncio.Task[Any], bool] = {}  # whether it is a mutation
        self._keeper: asyncio.Task[None] | None = None

    def start_keeper(self) -> None:
        """Start the task that checks all connections, unless it runs."""
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name="keeper", context=contextvars.Context())

    async def stop(self) -> None:
        """Let mutations finish, then close all connections so that clients reconnect to another process."""
        self.is_stopping = True
        mutations = [task for task, is_mutation in self._running.items() if is_mutation]
        if mutations:
            await asyncio.wait(mutations, timeout=MUTATIONS_TIMEOUT.total_seconds())
        for connection in list(self.connections.open):
            connection.close_for_restart()
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper

    async def authenticate(
        self, authorization: object, *, session: str | None = None, address: str = ""
    ) -> Caller | None:
        """The caller of a valid token, or of the session if there is no token; else None. Raises TooManyWrongTokens."""
        secret = session if authorization is None else bearer_secret(authorization)
        if secret is None:
            return None
        caller = await self._services.tokens.caller_of(secret, address=address)
        await self._services.seals.load()  # once; before any cursor or job id is read or written
        return caller

    async def authenticate_socket(
        self, authorization: object, *, session: str | None = None, address: str = ""
    ) -> Caller | None:
        """The same for a socket: a thousand reconnects with one token share one look-up for a second.

        A token revoked within that second is found by the next check of all tokens.
        """
        given = session if authorization is None else authorization
        if not isinstance(given, str):
            return None
        # A login's secret where a token belongs must not find the look-up of its cookie.
        key = sha256(f"{authorization is None} {given}".encode()).digest()
        pending = self._authenticating.get(key)
        if pending is None:
            pending = asyncio.ensure_future(self.authenticate(authorization, session=session, address=address))
            pending.add_done_callback(_consume_error)
            self._authenticating[key] = pending
            asyncio.get_running_loop().call_later(TOKEN_TTL.total_seconds(), self._authenticating.pop, key, None)
        return await asyncio.shield(pending)

    async def respond(
        self, document: Document, operation: Operation, request: Request, caller: Caller
    ) -> GraphQLResult:
        """Run a query or mutation of a WebSocket."""
        request_id = new_request_id(request.request_id)
        trace = job_origin.bound_traceparent(request.traceparent)
        with (
            structlog.contextvars.bound_contextvars(request_id=request_id, **trace),
            RequestObservation("socket", traceparent=request.traceparent) as arrival,
        ):
            result = await self.responder.respond(document, operation, request.variables, caller, request_id)
            arrival.answered(OK if result.has_data else ERROR)
            return result

    def read_document(self, request: Request, caller: Caller) -> Document | list[GraphQLError]:
        """The parsed document of a request; validating a new one is charged to the token."""
        checked = self.documents.checked
        document = self.documents.find(request)
        if self.documents.checked != checked:
            self.rate_limiter.charge(caller, VALIDATION_COST)
        return document

    def take_request(self, caller: Caller) -> int | None:
        """Count a request; None if it is allowed, else the milliseconds to wait."""
        wait = self.rate_limiter.take(caller)
        if wait is None:
            self.broadcasts.turns.note_request(caller.project_id)
        return wait

    def find_operation(self, request: Request, caller: Caller) -> tuple[Document, Operation] | Errors:
        """The operation a connected client asks for, or the errors why it is not started."""
        wait = self.take_request(caller)
        if wait is not None:
            return self.public_errors([rate_limited(wait)], request)
        document = self.read_document(request, caller)
        if not isinstance(document, Document):
            return self.public_errors(document, request)
        try:
            operation = document.operation(request.operation_name)
        except GraphQLError as error:
            return self.public_errors([error], request)
        if operation.kind is OperationType.SUBSCRIPTION:  # queries and mutations are charged by the responder
            cost = operation.cost.of(request.variables)
            self.rate_limiter.charge(caller, cost // COST_PER_REQUEST)
            too_costly = self.responder.too_costly(cost)
            if too_costly is not None:
                return self.public_errors([too_costly], request)
        return document, operation

    async def subscribe(
        self,
        subscriber: Subscriber,
        request: Request,
        document: Document,
        caller: Caller,
        *,
        resume_at: str | None = None,
    ) -> None:
        """Add a subscriber to its broadcast; a failure ends it with errors."""
        try:
            await self.broadcasts.join(subscriber, request, document, caller, resume_at=resume_at)
        except Exception as error:  # noqa: BLE001  # sent to the client, and logged if it is a bug
            errors = error.errors if isinstance(error, InvalidVariables) else [to_graphql_error(error)]
            subscriber.finish(self.public_errors(errors, request))

    def public_errors(self, errors: Sequence[GraphQLError], request: Request) -> Errors:
        return public_errors(errors, new_request_id(request.request_id))

    def _run_mutation(self, work: Coroutine[Any, Any, ExecutionResult]) -> "asyncio.Task[ExecutionResult]":
        return self.run(work, is_mutation=True)

    def run(self, work: Coroutine[Any, Any, T], *, is_mutation: bool) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name="operation")
        self._running[task] = is_mutation
        task.add_done_callback(self._on_done)
        return task

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """The client no longer waits: cancel it, unless it is a mutation."""
        if not self._running.get(task, True):
            task.cancel()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("socket.operation_failed", exc_info=task.exception())

    async def _keep(self) -> None:
        """One loop over all connections instead of a timer for each."""
        shortest = min(
            self.settings.socket_init_timeout, self.settings.socket_ping_interval, self.settings.socket_token_check
        )
        step = min(1.0, shortest.total_seconds() / 4)
        checked = time.monotonic()
        while self.connections.open:
            await asyncio.sleep(step)
            now = time.monotonic()
            for connection in list(self.connections.open):
                try:
                    connection.check(now)
                except Exception:  # one connection's bug must not stop the checks of others
                    log.exception("socket.look_failed")
            if now - checked >= self.settings.socket_token_check.total_seconds():
                await self._check_tokens()
                checked = time.monotonic()

    async def _check_tokens(self) -> None:
        tokens = self.connections.tokens()
        if not tokens:
            return
        try:
            good = await self._services.tokens.still_valid(tokens)
        except Exception as error:  # the next check comes soon; expiry is checked without the database
            if not is_database_unavailable(error):
                log.exception("socket.token_check_failed")
            return
        gone = set(tokens) - good
        for connection in list(self.connections.open):
            if connection.caller is not None and connection.caller.token_id in gone:
                connection.close_unauthorized()


def new_request_id(given: str | None = None) -> str:
    """The caller's id, if it has the form that logs, job rows and headers can hold; else a new one."""
    if given is not None and job_origin.is_request_id(given):
        return given
    return f"req_{os.urandom(10).hex()}"


def rate_limited(wait_ms: int) -> GraphQLError:
    message = "Too many requests with this token or in this project."
    extensions = {"code": "RATE_LIMITED", "retryable": True, "retryAfterMs": wait_ms}
    return GraphQLError(message, extensions=extensions)


def _consume_error(pending: "asyncio.Future[Caller | None]") -> None:
    """Mark its error as retrieved; else asyncio would log it when no caller is left to get it."""
    if not pending.cancelled():
        pending.exception()
