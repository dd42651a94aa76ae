"""Values to bytes and back by their declared types, for caches that several processes share. Never pickle: whoever can
write to the cache could then run code in all of them."""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import orjson

Value = TypeVar("Value")

Read = Callable[[Any], Any]


class Unreadable(ValueError):
    """Bytes of another version of the code, or not ours at all."""


class Codec(Generic[Value]):
    """For one type: dataclasses of plain values, tuples and other dataclasses.

    A type that holds a SecretStr has no codec, so no secret gets into a shared cache by mistake.
    """

    def __init__(self, hint: Any) -> None:
        self._read = _reader(hint)

    def to_bytes(self, value: Value) -> bytes:
        return orjson.dumps(value)

    def from_bytes(self, data: bytes) -> Value:
        try:
            return cast("Value", self._read(orjson.loads(data)))
        except (TypeError, ValueError, KeyError) as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from None


def _reader(hint: Any) -> Read:
    if hint in (str, int, bool):
        return _exactly(hint)
    if hint is float:
        return float
    if hint is datetime:
        return datetime.fromisoformat
    if isinstance(hint, type) and issubclass(cast("type[Any]", hint), Enum):
        return cast("Read", hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (inner,) = (choice for choice in arguments if choice is not NoneType)
        read = _reader(inner)
        return lambda value: None if value is None else read(value)
    if origin in (tuple, list, Sequence) and arguments:
        read = _reader(arguments[0])
        return lambda value: tuple(read(item) for item in _listed(value))
    raise TypeError(f"a shared cache can't hold {hint}")


def _dataclass_reader(hint: Any) -> Read:
    hints = get_type_hints(hint)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(hint)}

    def read(value: Any) -> Any:
        # A name more or less means other code: better to load it again than to guess.
        if not isinstance(value, dict) or cast("dict[str, Any]", value).keys() != readers.keys():
            raise TypeError(f"not a {hint.__name__}")
        return hint(**{name: each(value[name]) for name, each in readers.items()})

    return read


def _exactly(wanted: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not wanted:
            raise TypeError(f"expected {wanted.__name__}, found {type(value).__name__}")
        return value

    return read


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return cast("list[Any]", value)
