"""Registers the domain's enums with GraphQL, with a description for each value."""

from collections.abc import Mapping
from enum import EnumMeta
from typing import TypeVar

import strawberry
from strawberry.types.enum import StrawberryEnumDefinition

E = TypeVar("E", bound=EnumMeta)


def described(enum: E, *, description: str, values: Mapping[str, str], name: str | None = None) -> E:
    """The enum stays a plain Python enum; raises TypeError if a value has no description, or the reverse."""
    strawberry.enum(enum, name=name, description=description)
    definition: StrawberryEnumDefinition = vars(enum)["__strawberry_definition__"]
    if missing := {value.name for value in definition.values} ^ values.keys():
        raise TypeError(f"{enum.__name__}: {', '.join(sorted(missing))}")
    for value in definition.values:
        value.description = values[value.name]
    return enum
