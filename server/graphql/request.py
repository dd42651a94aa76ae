"""A GraphQL request's parameters, checked; the same for all transports."""

import re
from dataclasses import dataclass
from typing import Any, TypeGuard

HASH = re.compile(r"[0-9a-f]{64}")


class Malformed(Exception):
    """A parameter is missing or of the wrong type; the message says which."""


@dataclass(frozen=True, slots=True)
class Request:
    """`query` is empty when the document is only named by the hash of its text."""

    query: str
    operation_name: str | None
    variables: dict[str, Any]
    hash: str | None = None
    # Of a WebSocket's operation, which has no headers; their form is not checked yet.
    request_id: str | None = None
    traceparent: str | None = None


def read_request(parameters: object) -> Request:
    """The parameters of a request; raises Malformed."""
    if not is_object(parameters):
        is_batch = isinstance(parameters, list)
        raise Malformed("Send one request at a time: batches are off" if is_batch else "The request is not an object")
    query, name = parameters.get("query"), parameters.get("operationName")
    if query is not None and not isinstance(query, str):
        raise Malformed("query is not a text")
    if name is not None and not isinstance(name, str):
        raise Malformed("operationName is not a text")
    variables = object_or_none(parameters, "variables") or {}
    hash = _hash(parameters)
    if not query and hash is None:
        raise Malformed("query is missing, and there is no hash in its place")
    extensions = object_or_none(parameters, "extensions") or {}
    return Request(query or "", name, variables, hash, *caller_ids(extensions))


def caller_ids(given: dict[str, Any]) -> tuple[str | None, str | None]:
    """`x-request-id` and `traceparent` of a message without headers."""
    request_id, traceparent = given.get("x-request-id"), given.get("traceparent")
    return (
        request_id if isinstance(request_id, str) else None,
        traceparent if isinstance(traceparent, str) else None,
    )


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _hash(parameters: dict[str, Any]) -> str | None:
    """As Apollo and urql send it (APQ), or as `documentId` of GraphQL over HTTP."""
    extensions = object_or_none(parameters, "extensions") or {}
    persisted, id = extensions.get("persistedQuery"), parameters.get("documentId")
    if persisted is not None:
        if not is_object(persisted) or persisted.get("version") != 1:
            raise Malformed("extensions.persistedQuery is not of version 1")
        return _valid_hash(persisted.get("sha256Hash"), "extensions.persistedQuery.sha256Hash")
    if id is None:
        return None
    if not isinstance(id, str):
        raise Malformed("documentId is not a text")
    return _valid_hash(id.removeprefix("sha256:"), "documentId")


def _valid_hash(hash: object, name: str) -> str:
    if not isinstance(hash, str) or HASH.fullmatch(hash) is None:
        raise Malformed(f"{name} is not a SHA-256 hash in lower-case hexadecimal digits")
    return hash


def object_or_none(holder: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = holder.get(name)
    if value is None:
        return None
    if not is_object(value):
        raise Malformed(f"{name} is not an object")
    return value
