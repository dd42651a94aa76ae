"""What all models share: the dataclass decorator, a page of a list, and readers of responses that hold models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, dataclass_transform

from server.novita.transport.json_reader import InvalidResponse, JsonReader

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=True, field_specifiers=(field,))
def model(cls: type[T]) -> type[T]:
    """A slotted dataclass, frozen for the type checker only.

    Creating one that is frozen at run time takes four times as long, and every poll creates an instance of 39 fields.
    It is hashable like a frozen one.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


@model
class ProviderPage(Generic[T]):
    """One page of a list; `total` is None where the provider does not say it."""

    items: tuple[T, ...]
    total: int | None


def list_of(read: Callable[[JsonReader], T | None], *keys: str) -> Callable[[JsonReader], list[T]]:
    """Reads a list under the first of these keys; items that are read as None are left out."""
    return lambda raw: [found for item in raw.items(*keys) if (found := read(item)) is not None]


def page_of(read: Callable[[JsonReader], T], *keys: str) -> Callable[[JsonReader], ProviderPage[T]]:
    """Reads a page under the first of these keys."""
    return lambda raw: ProviderPage(tuple([read(item) for item in raw.items(*keys)]), raw.integer("total"))


def only(read: Callable[[JsonReader], T], key: str) -> Callable[[JsonReader], T]:
    """Reads one object, which may be in an array of one."""

    def read_only(raw: JsonReader) -> T:
        found = raw.objects(key)
        if len(found) != 1:
            raise InvalidResponse(f"it has no {key}")
        return read(found[0])

    return read_only


def id_of(*names: str) -> Callable[[JsonReader], str]:
    """Reads the id under the first of these names."""
    return lambda raw: raw.required_id(*names)
