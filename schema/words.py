"""Closed sets of words as GraphQL enums, with what each of the words means."""

from collections.abc import Mapping
from enum import EnumMeta
from typing import TypeVar

import strawberry
from strawberry.types.enum import StrawberryEnumDefinition

E = TypeVar("E", bound=EnumMeta)


def described(words: E, *, description: str, values: Mapping[str, str], name: str | None = None) -> E:
    """The words stay a plain Python enum of the domain; GraphQL learns what they mean here."""
    strawberry.enum(words, name=name, description=description)
    definition: StrawberryEnumDefinition = vars(words)["__strawberry_definition__"]
    if missing := {value.name for value in definition.values} ^ values.keys():
        raise TypeError(f"{words.__name__}: {', '.join(sorted(missing))}")
    for value in definition.values:
        value.description = values[value.name]
    return words
