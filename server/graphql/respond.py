"""Runs one query or mutation within its cost and time limits, for HTTP, WebSocket and SSE."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from graphql import ExecutionResult, GraphQLError, OperationType
from strawberry import Schema
from structlog.contextvars import bind_contextvars

from schema.context import Context, Services
from schema.error_masking import public_errors
from server.auth.caller import Caller
from server.auth.rate_limit import RateLimiter
from server.graphql.documents.document import Document, Operation
from server.graphql.execution.execute import InvalidVariables, build_executor, execute
from server.observe import http_requests

COST_PER_REQUEST = 1_000  # of query cost; a more expensive query counts as several requests

Run = Callable[[Coroutine[Any, Any, ExecutionResult]], "asyncio.Task[ExecutionResult]"]


@dataclass(frozen=True, slots=True)
class GraphQLResult:
    """`body` is ready to be encoded as JSON. Without `has_data` nothing was executed, and it holds only errors."""

    body: dict[str, Any]
    has_data: bool

    @property
    def errors(self) -> list[dict[str, Any]]:
        return self.body.get("errors", [])


class Responder:
    """`run` starts a task that the process waits for before it stops, so that mutations finish."""

    def __init__(self, schema: Schema, services: Services, most_cost: int, rates: RateLimiter, run: Run) -> None:
        self._schema = schema
        self._services = services
        self._cost_max = most_cost
        self._rates = rates
        self._seconds = services.settings.query_timeout.total_seconds()
        self._run = run

    async def respond(
        self, document: Document, operation: Operation, variables: dict[str, Any], caller: Caller, request_id: str
    ) -> GraphQLResult:
        """Never raises: errors of the request and our own are part of the result."""
        http_requests.classify_request(operation.kind.value, operation.fields)
        bind_contextvars(token_id=caller.token_id, project_id=caller.project_id)
        cost = operation.cost.of(variables)
        self._rates.charge(caller, cost // COST_PER_REQUEST)
        extensions = {"cost": {"requested": cost, "limit": self._cost_max}}
        error = self.too_costly(cost)
        if error is not None:
            return GraphQLResult(
                {"errors": public_errors([error], request_id), "extensions": extensions}, has_data=False
            )
        context = Context(self._services, request_id=request_id, is_socket=False, selections=operation.selections)
        context.admit(caller)
        is_mutation = operation.kind is OperationType.MUTATION
        try:
            # Here and not in the mutation's task, so that variables that do not fit are no failure of the task.
            executor = build_executor(self._schema, document, operation, variables, context)
            result = execute(executor, operation)
            if not isinstance(result, ExecutionResult):
                result = await (self._run_to_end(result) if is_mutation else self._with_timeout(result))
        except TimeoutError:
            return GraphQLResult(
                {"errors": public_errors([self._timeout_error(is_mutation=is_mutation)], request_id)},
                has_data=False,
            )
        except InvalidVariables as error:
            return GraphQLResult(
                {"errors": public_errors(error.errors, request_id), "extensions": extensions}, has_data=False
            )
        except RecursionError:
            error = GraphQLError("The variables are nested too deeply.")
            return GraphQLResult({"errors": public_errors([error], request_id)}, has_data=False)
        body: dict[str, Any] = {"data": result.data}
        if result.errors:
            body["errors"] = public_errors(result.errors, request_id)
        body["extensions"] = extensions
        return GraphQLResult(body, has_data=True)

    def too_costly(self, cost: int) -> GraphQLError | None:
        if cost <= self._cost_max:
            return None
        message = f"The query costs {cost}; at most {self._cost_max} is allowed. Request fewer fields or shorter pages."
        details = {"limit": "QUERY_MAX_COST", "allowed": self._cost_max, "found": cost}
        return GraphQLError(message, extensions={"code": "LIMIT_EXCEEDED", "retryable": False, **details})

    async def _with_timeout(self, work: Coroutine[Any, Any, ExecutionResult]) -> ExecutionResult:
        async with asyncio.timeout(self._seconds) as limit:
            try:
                return await work
            except TimeoutError as error:
                if limit.expired():
                    raise
                raise RuntimeError("an unrelated timeout escaped a resolver") from error

    async def _run_to_end(self, work: Coroutine[Any, Any, ExecutionResult]) -> ExecutionResult:
        """A mutation is never cancelled half-way: after the timeout only the waiting ends."""
        task = self._run(work)
        done, _ = await asyncio.wait([task], timeout=self._seconds)
        if not done:
            raise TimeoutError
        return task.result()

    def _timeout_error(self, *, is_mutation: bool) -> GraphQLError:
        message = f"The request took longer than {self._seconds:g} s. "
        message += (
            "It continues: repeat it with the same idempotency key." if is_mutation else "Select less, or retry later."
        )
        extensions = {"code": "TIMEOUT", "retryable": True, "retryAfterMs": 1000}
        return GraphQLError(message, extensions=extensions)
