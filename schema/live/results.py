"""Results and errors as bytes, with nothing in them that a client should not see."""

import json
from typing import Any

import orjson
from graphql import ExecutionResult, GraphQLError

from schema.faults import shown
from server.errors import CursorExpired, Lagging, Refused


class Results:
    """For one operation: errors carry its request id."""

    __slots__ = ("_request_id",)

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id

    def body_of(self, result: ExecutionResult) -> bytes:
        """The result of an execution whose errors nobody has looked at yet."""
        answer: dict[str, Any] = {"data": result.data}
        if result.errors:
            answer["errors"] = shown(result.errors, self._request_id)
        return encoded(answer)

    def errors_of(self, error: Exception) -> list[dict[str, Any]]:
        """What a failed subscription ends with."""
        fault = fault_of(error)
        fault = fault or GraphQLError("Something went wrong on our side.", original_error=error)
        return shown([fault], self._request_id)


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
