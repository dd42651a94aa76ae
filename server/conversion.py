"""Builds an object from another one that has fields of the same names."""

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def convert(cls: type[T], source: object, **converted: Any) -> T:
    """An object with the `converted` fields; all others are the attributes of the same name of `source`."""
    return cls(**{name: getattr(source, name) for name in _same_named(cls, tuple(converted))}, **converted)


@cache
def _same_named(cls: Any, converted: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls) if field.init and field.name not in converted)
