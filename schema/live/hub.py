"""What all watchers of a process share: cohorts, counts, and one task that looks after every connection."""

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, TypeVar
from uuid import uuid4

import structlog
from graphql import ExecutionResult, GraphQLError, OperationType
from strawberry import Schema

from schema.answers import Answer, Answers
from schema.context import Services
from schema.documents.core import core_of
from schema.documents.document import Document, Operation
from schema.documents.documents import Documents
from schema.documents.request import Request
from schema.faults import shown
from schema.live.census import Census
from schema.live.cohorts import Cohorts
from schema.live.limits import Limits
from schema.live.member import Errors
from schema.rates import CHECKING, COST_OF_ONE, Rates
from server.auth.caller import Caller
from server.db.trouble import is_database_away
from server.observe.requests import ERROR, OK, Arrival

log = structlog.get_logger(__name__)

T = TypeVar("T")

BELIEVED = timedelta(seconds=1)
CHANGES_WITHIN = timedelta(seconds=5)  # for what is being changed when the process stops


class Hub:
    """Connections enter and leave by themselves; the keeper's task lives while there is any."""

    def __init__(self, schema: Schema, services: Services) -> None:
        self._schema = schema
        self._services = services
        self.settings = services.settings
        self.limits = Limits.of(services.settings)
        self.census = Census(self.limits)
        self.documents = Documents.of(core_of(schema), services.settings)
        self.rates = Rates(services.settings.request_rate_limit)
        self.cohorts = Cohorts(schema, services)
        self.answers = Answers(services, self.documents.limits.cost, self.rates, self._carry)
        self.is_stopping = False
        self._greeting: dict[bytes, asyncio.Future[Caller | None]] = {}
        self._running: dict[asyncio.Task[Any], bool] = {}  # and whether it changes anything
        self._keeper: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Somebody came: there is something to look after."""
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name="keeper", context=contextvars.Context())

    async def stop(self) -> None:
        """Let changes be carried through, then send everybody to another process."""
        self.is_stopping = True
        changing = [task for task, is_change in self._running.items() if is_change]
        if changing:
            await asyncio.wait(changing, timeout=CHANGES_WITHIN.total_seconds())
        for connection in list(self.census.connections):
            connection.say_goodbye()
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper

    async def caller_of(self, authorization: object) -> Caller | None:
        """Whose token this is, if it is one that is good."""
        if not isinstance(authorization, str):
            return None
        kind, _, secret = authorization.partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            return None
        return await self._services.tokens.caller_of(secret.strip())

    async def greeted(self, authorization: object) -> Caller | None:
        """The same for a socket. When a thousand come back at once with one token, it is looked up once.

        A token is believed for a second; a revoked one that slips in is found by the next look at all tokens.
        """
        if not isinstance(authorization, str):
            return None
        key = sha256(authorization.encode()).digest()
        asked = self._greeting.get(key)
        if asked is None:
            asked = asyncio.ensure_future(self.caller_of(authorization))
            asked.add_done_callback(_looked_at)
            self._greeting[key] = asked
            asyncio.get_running_loop().call_later(BELIEVED.total_seconds(), self._greeting.pop, key, None)
        return await asyncio.shield(asked)

    async def answer(self, document: Document, operation: Operation, request: Request, caller: Caller) -> Answer:
        """To a query or a mutation over a connection that has many."""
        request_id = new_request_id()
        with structlog.contextvars.bound_contextvars(request_id=request_id), Arrival("socket") as arrival:
            answer = await self.answers.of(document, operation, request.variables, caller, request_id)
            arrival.answered(OK if answer.has_data else ERROR)
            return answer

    def read(self, request: Request, caller: Caller) -> Document | list[GraphQLError]:
        """The document of a request, at the expense of whoever sends it."""
        checked = self.documents.checked
        document = self.documents.find(request)
        if self.documents.checked != checked:
            self.rates.charge(caller.token_id, CHECKING)
        return document

    def find(self, request: Request, caller: Caller) -> tuple[Document, Operation] | Errors:
        """What somebody who is connected asks for, or why it is not begun."""
        wait = self.rates.take(caller.token_id)
        if wait is not None:
            return self.shown([too_often(wait)])
        document = self.read(request, caller)
        if not isinstance(document, Document):
            return self.shown(document)
        try:
            operation = document.operation(request.operation_name)
        except GraphQLError as error:
            return self.shown([error])
        if operation.kind is OperationType.SUBSCRIPTION:  # the others are counted where they are answered
            cost = operation.cost.of(request.variables)
            self.rates.charge(caller.token_id, cost // COST_OF_ONE)
            too_costly = self.answers.too_costly(cost)
            if too_costly is not None:
                return self.shown([too_costly])
        return document, operation

    def shown(self, errors: Sequence[GraphQLError]) -> Errors:
        return shown(errors, new_request_id())

    def _carry(self, work: Coroutine[Any, Any, ExecutionResult]) -> "asyncio.Task[ExecutionResult]":
        return self.run(work, is_change=True)

    def run(self, work: Coroutine[Any, Any, T], *, is_change: bool) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name="operation")
        self._running[task] = is_change
        task.add_done_callback(self._over)
        return task

    def let_go(self, task: asyncio.Task[Any]) -> None:
        """Nobody waits for the answer any more."""
        if not self._running.get(task, True):
            task.cancel()

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("socket.operation_failed", exc_info=task.exception())

    async def _keep(self) -> None:
        """Not a timer for each of thousands of sockets: one walk over them."""
        shortest = min(
            self.limits.socket_init_timeout, self.limits.socket_ping_interval, self.limits.socket_token_check
        )
        step = min(1.0, shortest.total_seconds() / 4)
        checked = time.monotonic()
        while self.census.connections:
            await asyncio.sleep(step)
            now = time.monotonic()
            for connection in list(self.census.connections):
                try:
                    connection.look(now)
                except Exception:  # one connection's trouble: the others are looked after all the same
                    log.exception("socket.look_failed")
            if now - checked >= self.limits.socket_token_check.total_seconds():
                await self._check_tokens()
                checked = time.monotonic()

    async def _check_tokens(self) -> None:
        tokens = self.census.tokens()
        if not tokens:
            return
        try:
            good = await self._services.tokens.still_valid(tokens)
        except Exception as error:  # the next look comes soon; expiry is told by the clock meanwhile
            if not is_database_away(error):
                log.exception("socket.token_check_failed")
            return
        gone = set(tokens) - good
        for connection in list(self.census.connections):
            if connection.caller is not None and connection.caller.token_id in gone:
                connection.expel()


def new_request_id() -> str:
    return f"req_{uuid4().hex[:20]}"


def too_often(wait_ms: int) -> GraphQLError:
    message = "This token asks too often."
    extensions = {"code": "RATE_LIMITED", "retryable": True, "retryAfterMs": wait_ms}
    return GraphQLError(message, extensions=extensions)


def _looked_at(asked: "asyncio.Future[Caller | None]") -> None:
    """Its error is told to those who wait for it; if none is left, to nobody."""
    if not asked.cancelled():
        asked.exception()
