"""Execution results and errors as bytes."""

from typing import Any

from graphql import ExecutionResult

from schema.error_masking import public_errors, to_graphql_error
from server.graphql.execution.encode import encoded


class ResultEncoder:
    """Encodes results of one operation; errors carry its request id."""

    __slots__ = ("_request_id",)

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id

    def body_of(self, result: ExecutionResult) -> bytes:
        """Encode a result, with its errors masked."""
        answer: dict[str, Any] = {"data": result.data}
        if result.errors:
            answer["errors"] = public_errors(result.errors, self._request_id)
        return encoded(answer)

    def errors_of(self, error: Exception) -> list[dict[str, Any]]:
        """The errors that end a failed subscription."""
        return public_errors([to_graphql_error(error)], self._request_id)
