"""Generates values and documents from the schema, so that a new type or field is covered."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    get_named_type,
    is_abstract_type,
    is_leaf_type,
    is_object_type,
)

from schema.root import schema

CORE: GraphQLSchema = schema._schema
ROOTS = {"Query", "Mutation", "Subscription"}


class Wrong:
    """A value that nothing in the schema expects."""


class Maker:
    """Values for types; now and then one that should not be there."""

    def __init__(self, seed: int, *, odd: float) -> None:
        self._random = random.Random(seed)
        self._odd = odd

    def value(self, type: Any, depth: int = 0) -> Any:
        if self._random.random() < self._odd:
            return self._random.choice([None, Wrong(), RuntimeError("a value may be an error"), "\ud800", 2**40, 1.5])
        if isinstance(type, GraphQLNonNull):
            return self._present(type.of_type, depth)
        return None if self._random.random() < 0.2 else self._present(type, depth)

    def _present(self, type: Any, depth: int) -> Any:
        if isinstance(type, GraphQLList):
            return [self.value(type.of_type, depth) for _ in range(self._random.randrange(3))]
        if isinstance(type, GraphQLEnumType):
            members = list(type.wrapped_cls)  # type: ignore[attr-defined]
            return self._random.choice([*members, self._random.choice(members).value])
        if is_leaf_type(type):
            return self._leaf(type.name)
        if is_abstract_type(type):
            return self._present(self._random.choice(list(CORE.get_possible_types(type))), depth)
        return self._object(type, depth)

    def _leaf(self, name: str) -> Any:
        match name:
            case "Int":
                return self._random.choice([0, -1, 7, 2**31 - 1, True])
            case "BigInt":
                return self._random.choice([0, 2**53 - 1, -5])
            case "Float":
                return self._random.choice([0.0, 1.25, 3, float("inf")])
            case "Boolean":
                return self._random.choice([True, False])
            case "DateTime":
                zone = self._random.choice([UTC, timezone(timedelta(hours=2)), None])
                return datetime(2026, 1, 2, 3, 4, 5, self._random.choice([0, 678]), zone)
            case "ID" | "String":
                return self._random.choice(["", "some text", 'with "quotes" and ü', 12])
            case _:
                return self._random.choice([{"a": 1}, "text", 3])

    def _object(self, type: GraphQLObjectType, depth: int) -> Any:
        """Made without its constructor, which may want more than the schema shows."""
        origin: Any = type.extensions["strawberry-definition"].origin
        made = object.__new__(origin)
        for field in type.fields.values():
            definition = field.extensions["strawberry-definition"]
            if definition.is_basic_field and self._random.random() >= self._odd / 4:
                is_deep = depth > 3 and not is_leaf_type(get_named_type(field.type))
                made.__dict__[definition.python_name] = None if is_deep else self.value(field.type, depth + 1)
        return made


def types() -> list[GraphQLObjectType]:
    return [
        each
        for each in CORE.type_map.values()
        if is_object_type(each) and not each.name.startswith("__") and each.name not in ROOTS
    ]


def holder(values: dict[str, tuple[Any, Any]]) -> GraphQLSchema:
    """A schema whose query has a field for each of these values, of the type given with it."""

    def resolver(value: Any) -> Any:
        return lambda *_: value

    fields = {name: GraphQLField(type, resolve=resolver(value)) for name, (type, value) in values.items()}
    return GraphQLSchema(query=GraphQLObjectType("Query", fields), types=list(types()))


def selection(type: Any, maker: random.Random, depth: int = 0) -> str:
    """Fields of a type, with other names, fragments and meta fields in between."""
    named: Any = get_named_type(type)
    if is_leaf_type(named):
        return ""
    parts = list(_parts(named, maker, depth))
    maker.shuffle(parts)
    return f"{{ {' '.join(parts or ['__typename'])} }}"


def _parts(named: Any, maker: random.Random, depth: int) -> Iterator[str]:
    if maker.random() < 0.5:
        yield "__typename"
    if is_abstract_type(named) and depth <= 2:
        for each in CORE.get_possible_types(named):
            if maker.random() < 0.7:
                yield f"... on {each.name} {selection(each, maker, depth + 1)}"
    for name, field in getattr(named, "fields", {}).items():
        if maker.random() < 0.4 or any(isinstance(each.type, GraphQLNonNull) for each in field.args.values()):
            continue
        if depth > 2 and not is_leaf_type(get_named_type(field.type)):
            continue
        inner = selection(field.type, maker, depth + 1)
        text = f"{name} {inner}"
        choice = maker.random()
        if choice < 0.1:
            text = f"other_{name}: {text}"
        elif choice < 0.2:
            text = f"... on {named.name} {{ {text} }}"
        elif choice < 0.25:
            text = f"{name} @include(if: $yes) {inner}"
        elif choice < 0.3 and inner:
            text = f"{text} {name} {selection(field.type, random.Random(1), depth + 1)}"
        yield text
