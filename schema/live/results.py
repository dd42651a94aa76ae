"""Results and errors as bytes, with nothing in them that a client should not see."""

import json
from collections.abc import Sequence
from typing import Any

import orjson
from graphql import ExecutionResult, GraphQLError
from strawberry import Schema
from strawberry.types import ExecutionContext
from strawberry.types import ExecutionResult as StrawberryResult

from schema.context import Context
from server.errors import CursorExpired, Lagging, Refused


class Results:
    """For one operation: errors carry its request id."""

    __slots__ = ("_context", "_schema")

    def __init__(self, schema: Schema, context: Context | None) -> None:
        self._schema = schema
        self._context = context

    def body_of(self, result: ExecutionResult | StrawberryResult) -> bytes:
        """The result of an execution whose errors nobody has looked at yet."""
        answer: dict[str, Any] = {"data": result.data}
        if result.errors:
            answer["errors"] = self.shown(result.errors)
        return encoded(answer)

    def errors_of(self, error: Exception) -> list[dict[str, Any]]:
        """What a failed subscription ends with."""
        fault = fault_of(error)
        return self.shown([fault or GraphQLError("Something went wrong on our side.", original_error=error)])

    def shown(self, errors: Sequence[GraphQLError]) -> list[dict[str, Any]]:
        """As clients see them; faults of ours are logged and masked on the way."""
        errors = list(errors)
        context = ExecutionContext(query=None, schema=self._schema, allowed_operations=(), context=self._context)
        self._schema.process_errors(errors, context)
        return [dict(error.formatted) for error in errors]


def fault_of(error: Exception) -> GraphQLError | None:
    """What is the reader's affair, in words; None for what is ours."""
    match error:
        case GraphQLError():
            return error
        case CursorExpired():
            message = "The events behind this cursor are no longer kept; read the present state and go on from there."
            return GraphQLError(message, extensions={"code": "CURSOR_EXPIRED", "retryable": False})
        case Lagging():
            message = "This server can't follow the log at the moment; subscribe again with your last cursor."
            return GraphQLError(message, extensions={"code": "RESUME", "retryable": True})
        case Refused():
            return GraphQLError(error.message, extensions={"code": error.code, "retryable": False})
        case _:
            return None


def encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()  # an error may repeat half a character of the request; only escapes hold it
