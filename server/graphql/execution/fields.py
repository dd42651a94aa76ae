"""What a compiled selection needs to know about a field, a type or a scalar."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from graphql import GraphQLObjectType, Undefined
from strawberry.execution import optimized_is_awaitable
from strawberry.types.field import StrawberryField

DEFINITION = "strawberry-definition"  # the extension in which Strawberry keeps its description of a type or a field

_MOMENTS = [datetime(2001, 2, 3, 4, 5, 6, 7), datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)]  # noqa: DTZ001


class Unexpected(Exception):
    """A value that the compiled function does not handle."""


class NotCompilable(Exception):
    """The selection has a field with a resolver or a directive, or a type that is not Strawberry's."""


def attribute_of(field: StrawberryField) -> str:
    """The attribute that a plain field reads."""
    if not field.is_basic_field or field.default_resolver is not getattr or not field.python_name.isidentifier():
        raise NotCompilable
    return field.python_name


def simple_resolver(field: StrawberryField) -> Callable[[Any], Any] | None:
    """The field's resolver, if it is a function of the object alone."""
    resolver = cast("Any", field).base_resolver
    if resolver is None or resolver.is_async or field.extensions or field.permission_classes:
        return None
    parameters = list(resolver.signature.parameters.values())
    if len(parameters) != 1 or parameters[0] != resolver.self_parameter:
        return None
    return cast("Callable[[Any], Any]", resolver)


def classes_of(type: GraphQLObjectType) -> list[Any]:
    """The type's class, and the subclasses that declare with `stands_for` that they have the same attributes.

    Such a class may name attributes in `row_fields` that are read from its `row`, without a property between, and in
    `made_fields` functions that make an attribute of its `row`, `seen_at` and `at`.
    """
    definition: Any = type.extensions.get(DEFINITION)
    if definition is None or definition.is_type_of is not None or definition.concrete_of is not None:
        raise NotCompilable
    own = definition.origin
    return [*(each for each in own.__subclasses__() if getattr(each, "stands_for", None) is own), own]


def is_iso(type: Any) -> bool:
    """Whether the scalar writes times as `isoformat` does."""
    return all(type.coerce_output_value(moment) == moment.isoformat() for moment in _MOMENTS)


def is_plain(type: Any, value: object) -> bool:
    """Whether the scalar writes a value as it is."""
    return type.coerce_output_value(value) == value


def coercer_of(type: Any) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if value is None or isinstance(value, Exception) or optimized_is_awaitable(value):
            raise Unexpected
        coerced = type.coerce_output_value(value)
        if coerced is None or coerced is Undefined:
            raise Unexpected
        return coerced

    return coerce
