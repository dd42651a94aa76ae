"""Arguments as resolvers want them: what Strawberry finds out anew for every value is found out once for every type."""

from collections.abc import Callable
from dataclasses import MISSING
from typing import Any

from strawberry.relay.types import GlobalID
from strawberry.schema.config import StrawberryConfig
from strawberry.types.arguments import _is_leaf_type  # pyright: ignore[reportPrivateUsage] - what it calls a leaf is its own affair
from strawberry.types.base import StrawberryList, StrawberryMaybe, StrawberryOptional, has_object_definition
from strawberry.types.enum import has_enum_definition
from strawberry.types.field import StrawberryField
from strawberry.types.lazy_type import LazyType
from strawberry.types.unset import UNSET

Convert = Callable[[Any], Any]


class Unknown(Exception):
    """A kind of argument that is left to Strawberry."""


class Converters:
    """For one schema. Types are remembered, so that inputs may name themselves."""

    def __init__(self, config: StrawberryConfig, scalar_registry: Any) -> None:
        self._config = config
        self._scalars = scalar_registry
        self._inputs: dict[Any, Convert] = {}

    def of_field(self, field: StrawberryField) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """From the arguments as GraphQL names them to those of the resolver. Raises Unknown."""
        known = [
            (self._config.name_converter.from_argument(each), each.python_name, self._of(each.type))
            for each in field.arguments
        ]
        if not known:
            return lambda _given: {}

        def convert(given: dict[str, Any]) -> dict[str, Any]:
            return {name: of(given[told]) for told, name, of in known if told in given}

        return convert

    def _of(self, type: Any) -> Convert:
        if isinstance(type, StrawberryMaybe):
            raise Unknown
        if isinstance(type, StrawberryOptional):
            return self._of(type.of_type)
        if isinstance(type, StrawberryList):
            return self._list(type)
        if _is_leaf_type(type, self._scalars):
            if type is GlobalID:
                raise Unknown
            return _same
        if isinstance(type, LazyType):
            return self._of(type.resolve_type())  # pyright: ignore[reportUnknownMemberType]
        if has_enum_definition(type):
            return self._of(type.__strawberry_definition__)
        if has_object_definition(type):
            return self._input(type)
        raise Unknown

    def _list(self, type: Any) -> Convert:
        of = self._of(type.of_type)

        def convert(value: Any) -> Any:
            if value is None or value is UNSET:
                return value
            return list(value) if of is _same else [of(each) for each in value]

        return convert

    def _input(self, type: Any) -> Convert:
        known = self._inputs.get(type)
        if known is not None:
            return known
        definition: Any = type.__strawberry_definition__
        if definition.from_input is not None or not definition.is_input:
            raise Unknown
        fields: list[tuple[str, str, Convert]] = []

        def convert(value: Any) -> Any:
            if value is None or value is UNSET:
                return value
            given = dict(empty)
            for told, name, of in fields:
                if told in value:
                    given[name] = of(value[told])
            return type(**given)

        self._inputs[type] = convert
        empty = {
            each.python_name: None
            for each in definition.fields
            if each.default_value is MISSING and each.default_factory is MISSING
        }
        try:
            fields += [
                (
                    self._config.name_converter.from_field(each),
                    each.python_name,
                    self._of(each.resolve_type(type_definition=definition)),
                )
                for each in definition.fields
            ]
        except Unknown:
            del self._inputs[type]
            raise
        return convert


def _same(value: Any) -> Any:
    return value
