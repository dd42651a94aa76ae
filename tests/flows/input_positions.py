"""Requests generated from the SDL: a secret in every place where a caller can put a value."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLSchema,
    build_schema,
    get_named_type,
    is_leaf_type,
    is_required_argument,
    is_required_input_field,
)

from tests.support.processes import ROOT

PREFIX = "sEcReT"
DEPTH_MAX = 6
FORMS = 4  # of the secret, for each position; the first is the secret itself
VALID: dict[str, Any] = {
    "Int": 1,
    "Float": 1.0,
    "Boolean": True,
    "BigInt": "1",
    "Duration": "PT1M",
    "DateTime": "2099-01-01T00:00:00Z",
    "ID": "inst_01890000000000000000000000000000",
    "String": "x",
}
# So that a create is accepted, and its values go all the way to the provider.
ACCEPTED: dict[str, Any] = {"productName": "RTX 4090 24GB", "image": "nginx", "rootfsSize": 60}

Path = tuple[str, ...]


@dataclass(frozen=True)
class Request:
    kind: str  # query, mutation or subscription
    field: str
    position: Path
    document: str
    variables: dict[str, Any]


def requests() -> Iterator[Request]:
    """For every position: the secret itself, and values of other types that contain it."""
    schema = build_schema((ROOT / "schema/schema.graphql").read_text())
    roots = {"query": schema.query_type, "mutation": schema.mutation_type, "subscription": schema.subscription_type}
    number = 0
    makers = (lambda word: word, lambda word: {"key": word}, lambda word: [word, [word]], _as_name)
    assert len(makers) == FORMS
    for kind, root in roots.items():
        assert root is not None
        for name, field in root.fields.items():
            document = _document(schema, kind, name, field)
            for position in _positions(field.args):
                for make in makers:
                    number += 1
                    values = _arguments(field.args, position, make(f"{PREFIX}{number}"), number)
                    yield Request(kind, name, position, document, values)


def _as_name(word: str) -> Any:
    """The mistake of a map for a list of pairs: the name of the variable is not secret, its value is."""
    return {"HF_TOKEN": {"value": word}}


def _document(schema: GraphQLSchema, kind: str, name: str, field: Any) -> str:
    declared = ", ".join(f"${each}: {argument.type}" for each, argument in field.args.items())
    passed = ", ".join(f"{each}: ${each}" for each in field.args)
    selected = "" if is_leaf_type(get_named_type(field.type)) else " { __typename }"
    payload = schema.get_type(get_named_type(field.type).name)
    if "errors" in getattr(payload, "fields", {}):
        selected = " { errors { code message path } }"
    return f"{kind}({declared}) {{ {name}({passed}){selected} }}" if declared else f"{kind} {{ {name}{selected} }}"


def _positions(arguments: dict[str, GraphQLArgument]) -> Iterator[Path]:
    for name, argument in arguments.items():
        yield from _positions_of(argument.type, (name,))


def _positions_of(type: Any, path: Path) -> Iterator[Path]:
    yield path
    named = get_named_type(type)
    if isinstance(named, GraphQLInputObjectType) and len(path) < DEPTH_MAX and path.count(path[-1]) == 1:
        for name, field in named.fields.items():
            yield from _positions_of(field.type, (*path, name))


def _arguments(arguments: dict[str, GraphQLArgument], position: Path, value: Any, number: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, argument in arguments.items():
        if name == position[0]:
            values[name] = _value(argument.type, position[1:], value, number)
        elif is_required_argument(argument):
            values[name] = _value(argument.type, None, None, number)
    return values


def _value(type: Any, position: Path | None, value: Any, number: int) -> Any:
    """A valid value, with `value` at the position below it."""
    if position == ():
        return value
    if isinstance(type, GraphQLNonNull):
        return _value(type.of_type, position, value, number)
    if isinstance(type, GraphQLList):
        return [_value(type.of_type, position, value, number)]
    if isinstance(type, GraphQLInputObjectType):
        return _object(type, position, value, number)
    if isinstance(type, GraphQLEnumType):
        return next(iter(type.values))
    return VALID[type.name]


def _object(type: GraphQLInputObjectType, position: Path | None, value: Any, number: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    fields: dict[str, GraphQLInputField] = type.fields
    for name, field in fields.items():
        if position and name == position[0]:
            values[name] = _value(field.type, position[1:], value, number)
        elif type.name == "CreateInstanceInput" and name in ACCEPTED:
            values[name] = ACCEPTED[name]
        elif is_required_input_field(field):
            values[name] = f"n{number}" if name == "name" else _value(field.type, None, None, number)
    return values
