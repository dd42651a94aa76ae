"""What a client may say in graphql-transport-ws, checked to the letter."""

from dataclasses import dataclass
from typing import Any, TypeGuard

import orjson

from schema.live.limits import LONGEST_ID

WITH_PAYLOAD = frozenset({"connection_init", "ping", "pong"})


class BadMessage(Exception):
    """The socket is closed with 4400 and this reason."""


@dataclass(frozen=True, slots=True)
class Request:
    """A GraphQL request, however it came."""

    query: str
    operation_name: str | None
    variables: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClientMessage:
    type: str
    id: str = ""
    payload: dict[str, Any] | None = None
    request: Request | None = None


def read_message(text: str) -> ClientMessage:
    """Raises BadMessage for anything that the protocol does not know."""
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadMessage("The message is not JSON, or nested too deeply") from None
    if not is_object(found):
        raise BadMessage("The message is not an object")
    kind = found.get("type")
    if not isinstance(kind, str):
        raise BadMessage("The message has no type")
    if kind in WITH_PAYLOAD:
        return ClientMessage(kind, payload=_object_or_none(found, "payload"))
    if kind == "subscribe":
        payload = found.get("payload")
        if not is_object(payload):
            raise BadMessage("The payload of subscribe is not an object")
        return ClientMessage(kind, id=_id(found), request=read_request(payload))
    if kind == "complete":
        return ClientMessage(kind, id=_id(found))
    raise BadMessage("There is no message of that type for servers")


def read_request(payload: dict[str, Any]) -> Request:
    """The parameters of a request; raises BadMessage when one has the wrong type."""
    query, name = payload.get("query"), payload.get("operationName")
    if not isinstance(query, str) or not query:
        raise BadMessage("query is not a text")
    if name is not None and not isinstance(name, str):
        raise BadMessage("operationName is not a text")
    variables = _object_or_none(payload, "variables") or {}
    _object_or_none(payload, "extensions")
    try:
        orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise BadMessage("variables are nested too deeply") from None
    return Request(query, name, variables)


def _id(message: dict[str, Any]) -> str:
    id = message.get("id")
    if not isinstance(id, str) or not id:
        raise BadMessage("id is not a text")
    if len(id) > LONGEST_ID:
        raise BadMessage(f"id is longer than {LONGEST_ID} characters")
    return id


def _object_or_none(holder: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = holder.get(name)
    if value is None:
        return None
    if not is_object(value):
        raise BadMessage(f"{name} is not an object")
    return value


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
