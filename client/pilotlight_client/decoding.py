"""JSON of a response as the types of models.py."""

import types
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pilotlight_client.encoding import camel
from pilotlight_client.models import ERROR_TYPES, MutationError
from pilotlight_client.values import Money

Model = TypeVar("Model")
Decoder = Callable[[Any], Any]


def decode(model: type[Model], data: dict[str, Any]) -> Model:
    """An object of the class. Fields that the class does not have are ignored."""
    return model(**{name: read(data.get(json_name)) for name, json_name, read in _fields(model)})


def decode_error(data: dict[str, Any]) -> MutationError:
    """An error type that this version does not know is read as MutationError."""
    return decode(ERROR_TYPES.get(data.get("__typename", ""), MutationError), data)


@cache
def _fields(model: type[Any]) -> list[tuple[str, str, Decoder]]:
    hints = get_type_hints(model)
    return [(field.name, camel(field.name), _decoder(hints[field.name])) for field in fields(model)]


@cache
def _decoder(hint: Any) -> Decoder:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        # `T | None`, or an enum `T | str`: the member that is neither None nor str says how to read it.
        others = [each for each in arguments if each not in (type(None), str)]
        inner = _decoder(others[0]) if others else _as_it_is
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _decoder(arguments[0])
        return lambda values: tuple(item(value) for value in values or ())
    if origin is dict:
        return lambda pairs: {pair["key"]: pair["value"] for pair in pairs or ()}
    if hint is datetime:
        return datetime_from
    if hint is timedelta:
        return lambda seconds: timedelta(seconds=seconds)
    if hint is Money:
        return lambda money: Money(money["amountMicros"], money["currency"])
    if hint is MutationError:
        return decode_error
    if isinstance(hint, type) and issubclass(hint, Enum):
        known: dict[str, Enum] = {each.value: each for each in hint}
        return lambda word: known.get(word, word)  # a word of a newer server stays as it is
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        model: type[Any] = hint
        return lambda data: decode(model, data)
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def datetime_from(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
