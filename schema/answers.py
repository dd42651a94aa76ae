"""Answers to queries and mutations, the same over HTTP, WebSocket and server-sent events."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from graphql import ExecutionResult, GraphQLError, OperationType
from structlog.contextvars import bind_contextvars

from schema.context import Context, Services
from schema.documents.document import Document, Operation
from schema.execution.run import Unfit, execute
from schema.faults import shown
from schema.rates import COST_OF_ONE, Rates
from server.auth.caller import Caller
from server.observe import requests

Run = Callable[[Coroutine[Any, Any, ExecutionResult]], "asyncio.Task[ExecutionResult]"]


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is ready to be written as JSON. Without `has_data` nothing was carried out: only errors are told."""

    body: dict[str, Any]
    has_data: bool
    is_late: bool = False

    @property
    def errors(self) -> list[dict[str, Any]]:
        return self.body.get("errors", [])


class Answers:
    """`run` starts a task which the process waits for before it stops: changes are carried through."""

    def __init__(self, services: Services, most_cost: int, rates: Rates, run: Run) -> None:
        self._services = services
        self._most_cost = most_cost
        self._rates = rates
        self._seconds = services.settings.query_timeout.total_seconds()
        self._run = run

    async def of(
        self, document: Document, operation: Operation, variables: dict[str, Any], caller: Caller, request_id: str
    ) -> Answer:
        """What to tell; never raises for anything that the request, or we, did wrong."""
        requests.carries(operation.kind.value, operation.fields)
        bind_contextvars(token_id=caller.token_id, project_id=caller.project_id)
        cost = operation.cost.of(variables)
        self._rates.charge(caller.token_id, cost // COST_OF_ONE)
        extensions = {"cost": {"requested": cost, "limit": self._most_cost}}
        error = self.too_costly(cost)
        if error is not None:
            return Answer({"errors": shown([error], request_id), "extensions": extensions}, has_data=False)
        context = Context(self._services, request_id=request_id, is_socket=False)
        context.admit(caller)
        is_change = operation.kind is OperationType.MUTATION
        try:
            work = execute(document, operation, variables, context)
            result = await (self._carried_through(work) if is_change else self._in_time(work))
        except TimeoutError:
            return Answer(
                {"errors": shown([self._late(is_change=is_change)], request_id)}, has_data=False, is_late=True
            )
        except Unfit as unfit:
            return Answer({"errors": shown(unfit.errors, request_id), "extensions": extensions}, has_data=False)
        except RecursionError:
            error = GraphQLError("The variables are nested too deeply.")
            return Answer({"errors": shown([error], request_id)}, has_data=False)
        body: dict[str, Any] = {"data": result.data}
        if result.errors:
            body["errors"] = shown(result.errors, request_id)
        body["extensions"] = extensions
        return Answer(body, has_data=True)

    def too_costly(self, cost: int) -> GraphQLError | None:
        if cost <= self._most_cost:
            return None
        message = (
            f"This may cost {cost}, and at most {self._most_cost} is allowed. Ask for fewer fields or shorter pages."
        )
        told = {"limit": "QUERY_MAX_COST", "allowed": self._most_cost, "found": cost}
        return GraphQLError(message, extensions={"code": "LIMIT_EXCEEDED", "retryable": False, **told})

    async def _in_time(self, work: Coroutine[Any, Any, ExecutionResult]) -> ExecutionResult:
        async with asyncio.timeout(self._seconds) as limit:
            try:
                return await work
            except TimeoutError as error:
                if limit.expired():
                    raise
                raise RuntimeError("a time limit of something else got out") from error

    async def _carried_through(self, work: Coroutine[Any, Any, ExecutionResult]) -> ExecutionResult:
        """A change is not stopped half-way because of whoever waits for it: only the waiting ends."""
        task = self._run(work)
        done, _ = await asyncio.wait([task], timeout=self._seconds)
        if not done:
            raise TimeoutError
        return task.result()

    def _late(self, *, is_change: bool) -> GraphQLError:
        message = f"This has taken longer than {self._seconds:g} s. "
        message += "It goes on: ask again, with the same idempotency key." if is_change else "Ask for less, or later."
        extensions = {"code": "TIMEOUT", "retryable": True, "retryAfterMs": 1000}
        return GraphQLError(message, extensions=extensions)
