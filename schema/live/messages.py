"""What a client may say in graphql-transport-ws, checked to the letter."""

from dataclasses import dataclass
from typing import Any

import orjson

from schema.documents.request import Malformed, Request, is_object, read_request
from schema.live.limits import LONGEST_ID

WITH_PAYLOAD = frozenset({"connection_init", "ping", "pong"})


class BadMessage(Exception):
    """The socket is closed with 4400 and this reason."""


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
        return ClientMessage(kind, id=_id(found), request=_request(payload))
    if kind == "complete":
        return ClientMessage(kind, id=_id(found))
    raise BadMessage("There is no message of that type for servers")


def _request(payload: dict[str, Any]) -> Request:
    try:
        request = read_request(payload)
        check_depth(request.variables)
    except Malformed as error:
        raise BadMessage(str(error)) from None
    return request


def check_depth(variables: dict[str, Any]) -> None:
    """What can't be written again can't be compared with what others ask for; raises Malformed."""
    try:
        orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise Malformed("variables are nested too deeply") from None


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
