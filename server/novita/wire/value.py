"""How a value of the wire is declared."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A slotted dataclass that the type checker takes for frozen.

    At run time it is not: a frozen one takes four times as long to make, and an instance of 39 fields is made for every
    poll. It has a hash like a frozen one.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
