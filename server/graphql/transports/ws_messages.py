"""Parses and checks client messages of graphql-transport-ws."""

from dataclasses import dataclass
from typing import Any

import orjson

from server.graphql.live.connections import OPERATION_ID_MAX
from server.graphql.request import Malformed, Request, is_object, object_or_none, read_request

WITH_PAYLOAD = frozenset({"connection_init", "ping", "pong"})


class BadMessage(Exception):
    """Closes the socket with 4400 and this reason."""


@dataclass(frozen=True, slots=True)
class ClientMessage:
    type: str
    id: str = ""
    payload: dict[str, Any] | None = None
    request: Request | None = None


def read_message(text: str) -> ClientMessage:
    """Raises BadMessage for anything outside the protocol."""
    try:
        message: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadMessage("The message is not JSON, or nested too deeply") from None
    if not is_object(message):
        raise BadMessage("The message is not an object")
    kind = message.get("type")
    if not isinstance(kind, str):
        raise BadMessage("The message has no type")
    if kind in WITH_PAYLOAD:
        try:
            return ClientMessage(kind, payload=object_or_none(message, "payload"))
        except Malformed as error:
            raise BadMessage(str(error)) from None
    if kind == "subscribe":
        payload = message.get("payload")
        if not is_object(payload):
            raise BadMessage("The payload of subscribe is not an object")
        return ClientMessage(kind, id=_id(message), request=_request(payload))
    if kind == "complete":
        return ClientMessage(kind, id=_id(message))
    raise BadMessage("There is no message of that type for servers")


def _request(payload: dict[str, Any]) -> Request:
    try:
        request = read_request(payload)
        check_depth(request.variables)
    except Malformed as error:
        raise BadMessage(str(error)) from None
    return request


def check_depth(variables: dict[str, Any]) -> None:
    """Raises Malformed for variables too deep to serialise: they are part of a broadcast's key."""
    try:
        orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise Malformed("variables are nested too deeply") from None


def _id(message: dict[str, Any]) -> str:
    id = message.get("id")
    if not isinstance(id, str) or not id:
        raise BadMessage("id is not a text")
    if len(id) > OPERATION_ID_MAX:
        raise BadMessage(f"id is longer than {OPERATION_ID_MAX} characters")
    return id
