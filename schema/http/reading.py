"""From the bytes of an HTTP request to what it asks for; everything that is wrong with them is a Refusal."""

from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.types import Receive, Scope

from schema.documents.request import Malformed, Request, read_request
from schema.http.refusal import Refusal

JSON = b"application/json"
MOST_PARAMETERS = 20


class Gone(Exception):
    """The client went away before it had said everything."""


async def read(scope: Scope, headers: dict[bytes, bytes], receive: Receive, *, most_bytes: int) -> Request:
    """What is asked for; raises Refusal or Gone."""
    if scope["method"] == "GET":
        given = _parameters(scope["query_string"])
    else:
        _check_type(headers.get(b"content-type"), headers.get(b"content-encoding", b"identity"))
        given = _json(await _body(headers, receive, most_bytes), "The body")
    try:
        return read_request(given)
    except Malformed as error:
        raise Refusal(400, f"{error}.") from None


def _check_type(content_type: bytes | None, encoding: bytes) -> None:
    """Only JSON: a form's types may be sent by any page on the web without asking first."""
    if encoding.lower() != b"identity":
        raise Refusal(415, "Send the body as it is, not compressed.", "UNSUPPORTED_MEDIA_TYPE")
    if content_type is None:
        raise Refusal(415, "Say what you send: Content-Type: application/json.", "UNSUPPORTED_MEDIA_TYPE")
    kind, _, rest = content_type.lower().partition(b";")
    charset = rest.partition(b"charset=")[2].partition(b";")[0].strip().strip(b'"')
    if kind.strip() != JSON or charset not in (b"", b"utf-8", b"utf8"):
        raise Refusal(415, "Send application/json, in UTF-8.", "UNSUPPORTED_MEDIA_TYPE")


async def _body(headers: dict[bytes, bytes], receive: Receive, most_bytes: int) -> bytes:
    """Refused by what it says about itself, or else as soon as it is longer: it is never all in memory."""
    told = headers.get(b"content-length", b"")
    if told.isdigit() and (len(told) > 15 or int(told) > most_bytes):
        raise _too_large(most_bytes)
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        chunk: bytes = message.get("body", b"")
        if len(chunk) > most_bytes:
            raise _too_large(most_bytes)
        return chunk
    body = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise Gone
        body += message.get("body", b"")
        if len(body) > most_bytes:
            raise _too_large(most_bytes)
        if not message.get("more_body"):
            return bytes(body)
        message = await receive()


def _too_large(most_bytes: int) -> Refusal:
    return Refusal(413, f"The body is larger than {most_bytes} bytes.", "BODY_TOO_LARGE")


def _parameters(query: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS
        )
    except ValueError:  # also what is no UTF-8
        raise Refusal(400, "The parameters of the address can't be read.") from None
    given: dict[str, Any] = dict(pairs)
    if not given.get("operationName"):
        given.pop("operationName", None)  # in an address, nothing and no name are the same
    for name in ("variables", "extensions"):
        if name in given:
            given[name] = _json(given[name].encode(), name) if given[name] else None
    return given


def _json(raw: bytes, what: str) -> Any:
    if not raw:
        raise Refusal(400, f"{what} is empty.")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        # Also half a character (\ud800), which JSON can write and UTF-8 can't, and what is nested a thousand deep.
        raise Refusal(400, f"{what} is not JSON in UTF-8, or is nested too deeply.") from None
