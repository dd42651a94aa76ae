"""Reads the parameters of an HTTP request; anything malformed is an HttpError."""

from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.types import Receive, Scope

from server.graphql.request import Malformed, Request, read_request

JSON = b"application/json"
PARAMETERS_MAX = 20


class HttpError(Exception):
    """A request refused before GraphQL runs; sent in the form of GraphQL errors, so that clients read one form."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str = "BAD_REQUEST",
        *,
        retry_after_ms: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after_ms = retry_after_ms
        self.headers = headers
        if retry_after_ms is not None:
            self.headers = (*headers, (b"retry-after", b"%d" % -(-retry_after_ms // 1000)))

    def public_error(self, request_id: str) -> dict[str, Any]:
        is_retryable = self.retry_after_ms is not None
        extensions: dict[str, Any] = {"code": self.code, "retryable": is_retryable, "requestId": request_id}
        if is_retryable:
            extensions["retryAfterMs"] = self.retry_after_ms
        return {"message": self.message, "extensions": extensions}


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


async def read_http_request(scope: Scope, headers: dict[bytes, bytes], receive: Receive, *, max_bytes: int) -> Request:
    """Raises HttpError or ClientGone."""
    if scope["method"] == "GET":
        parameters = _parameters(scope["query_string"])
    else:
        _check_type(headers.get(b"content-type"), headers.get(b"content-encoding", b"identity"))
        parameters = _json(await read_body(headers, receive, max_bytes), "The body")
    try:
        return read_request(parameters)
    except Malformed as error:
        raise HttpError(400, f"{error}.") from None


def _check_type(content_type: bytes | None, encoding: bytes) -> None:
    """Only JSON: a form's types may be sent by any web page without a preflight."""
    if encoding.lower() != b"identity":
        raise HttpError(415, "Send the body uncompressed.", "UNSUPPORTED_MEDIA_TYPE")
    if content_type is None:
        raise HttpError(415, "Set Content-Type: application/json.", "UNSUPPORTED_MEDIA_TYPE")
    kind, _, rest = content_type.lower().partition(b";")
    charset = rest.partition(b"charset=")[2].partition(b";")[0].strip().strip(b'"')
    if kind.strip() != JSON or charset not in (b"", b"utf-8", b"utf8"):
        raise HttpError(415, "Send application/json, in UTF-8.", "UNSUPPORTED_MEDIA_TYPE")


async def read_body(headers: dict[bytes, bytes], receive: Receive, max_bytes: int) -> bytes:
    """Refused by its Content-Length, else as soon as it is too long, so a large body is never all in memory.

    Raises HttpError or ClientGone.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and (len(length) > 15 or int(length) > max_bytes):
        raise _too_large(max_bytes)
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        chunk: bytes = message.get("body", b"")
        if len(chunk) > max_bytes:
            raise _too_large(max_bytes)
        return chunk
    body = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body"):
            return bytes(body)
        message = await receive()


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(413, f"The body is larger than {max_bytes} bytes.", "BODY_TOO_LARGE")


def _parameters(query: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError:  # also invalid UTF-8
        raise HttpError(400, "The URL parameters can't be decoded.") from None
    parameters: dict[str, Any] = dict(pairs)
    if not parameters.get("operationName"):
        parameters.pop("operationName", None)  # in a URL, empty and missing are the same
    for name in ("variables", "extensions"):
        if name in parameters:
            parameters[name] = _json(parameters[name].encode(), name) if parameters[name] else None
    return parameters


def _json(raw: bytes, what: str) -> Any:
    if not raw:
        raise HttpError(400, f"{what} is empty.")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        # Also a lone surrogate (\ud800), which JSON can express and UTF-8 can't, and deep nesting.
        raise HttpError(400, f"{what} is not JSON in UTF-8, or is nested too deeply.") from None
