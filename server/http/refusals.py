"""Responses to requests that do not reach the application, in the form of every other error."""

from uuid import uuid4

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

REASONS = {
    400: "This is not HTTP.",
    408: "The request was not sent in time.",
    413: "The body is in too many small chunks.",
    414: "The address is too long.",
    431: "The head of the request is too long, or has too many or too long headers.",
    503: "Too many connections.",
}
HEADERS = (
    "content-type: application/json; charset=utf-8",
    "x-content-type-options: nosniff",
    "cache-control: no-store",
    "connection: close",
)


def refusal(status: int, code: str) -> bytes:
    """The whole response."""
    request_id = f"req_{uuid4().hex[:20]}"
    extensions = {"code": code, "retryable": status in (408, 503), "requestId": request_id}
    body = orjson.dumps({"errors": [{"message": REASONS[status], "extensions": extensions}]})
    lines = [f"x-request-id: {request_id}", f"content-length: {len(body)}", *HEADERS, "", ""]
    return STATUS_LINE[status] + "\r\n".join(lines).encode() + body
