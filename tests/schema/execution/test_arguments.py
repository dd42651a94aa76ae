"""Quick resolvers give their functions the very arguments that Strawberry would give them."""

import random
from typing import Any

import pytest
from graphql import coerce_input_value, is_object_type
from strawberry.types.arguments import convert_arguments

from schema.execution import resolvers
from schema.execution.arguments import Converters, Unknown
from schema.execution.selections import DEFINITION
from schema.root import schema
from tests.schema.execution.documents import CORE, _is_needed, given

FIELDS = [
    (f"{type.name}.{name}", field)
    for type in CORE.type_map.values()
    if is_object_type(type) and not type.name.startswith("__")
    for name, field in type.fields.items()
    if field.args
]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=[name for name, _ in FIELDS])
def test_arguments_are_converted_as_by_strawberry(name: str, field: Any):
    definition = field.extensions[DEFINITION]
    registry = schema.schema_converter.scalar_registry
    convert = Converters(schema.config, registry).of_field(definition)
    maker = random.Random(name)
    for _ in range(20):
        values = {
            argument: coerce_input_value(given(each.type, maker), each.type)
            for argument, each in field.args.items()
            if _is_needed(each) or maker.random() < 0.7
        }
        stock = convert_arguments(values, definition.arguments, registry, schema.config)
        assert convert(values) == stock


def test_every_asynchronous_field_of_the_schema_has_a_quick_resolver():
    slow = [
        f"{type.name}.{name}"
        for type in CORE.type_map.values()
        if is_object_type(type) and type is not CORE.subscription_type
        for name, field in type.fields.items()
        if _is_async(field) and resolvers.__name__ != field.resolve.__module__
    ]
    assert slow == []


def test_what_is_not_known_is_left_to_strawberry():
    with pytest.raises(Unknown):
        Converters(schema.config, schema.schema_converter.scalar_registry)._of(object())


def _is_async(field: Any) -> bool:
    definition = field.extensions.get(DEFINITION)
    return definition is not None and definition.base_resolver is not None and definition.is_async
