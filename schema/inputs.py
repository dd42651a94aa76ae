"""Inputs and arguments shared by several fields."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import cache
from typing import Annotated, Any, cast

import strawberry
from strawberry.schema.name_converter import NameConverter
from strawberry.types.arguments import InputContext
from strawberry.types.base import StrawberryOptional, get_object_definition

from schema.enums import described
from schema.scalars import BigInt
from server.enums import ToolName

described(
    ToolName,
    description="A tool that the provider runs beside the container.",
    values={
        "SSH": "An SSH server; see `sshAccess`.",
        "JUPYTER": "A Jupyter server.",
        "OTHER": "A tool of a template with a name of its own; refused as input.",
    },
)

VERSION = "Version you last read. The request is refused with VERSION_CONFLICT if the instance has changed since."
KEY = (
    "Client-chosen key, 1-255 characters. Repeating a request with the same key returns the first result "
    "and does nothing else."
)


@strawberry.input(description="Common part of all mutation inputs.")
class MutationInput:
    validate_only: bool = strawberry.field(
        default=False,
        description="Dry run: checks the request without writing anything or calling the provider. Only `errors` is "
        "filled; all other fields are null, empty or false.",
    )


@strawberry.input
class InstanceInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the instance.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(description="An exact amount of money.")
class MoneyInput:
    amount_micros: BigInt = strawberry.field(description="Millionths of the currency: 350000 is 0.35 USD.")
    currency: str = strawberry.field(default="USD", description="Only USD.")


@strawberry.input(description="A name and its value.")
class KeyValueInput:
    key: str = strawberry.field(description="The name.")
    value: str = strawberry.field(description="The value.")


@strawberry.input(description="An environment variable.")
class EnvVariableInput(KeyValueInput):
    secret: bool | None = strawberry.field(
        default=None,
        description="Whether the value is never shown again. Default: true if the name contains TOKEN, PASSWORD, "
        "KEY or another word of the list in docs/api.md.",
    )


@strawberry.input(description="A port to expose.")
class PortInput:
    port: int = strawberry.field(description="Port number, 1 to 65535, except 2222, 2223 and 2224.")
    type: str = strawberry.field(default="http", description="Protocol: http or tcp.")


@strawberry.input(description="A tool to run beside the container.")
class ToolInput:
    name: ToolName = strawberry.field(description="SSH or JUPYTER.")
    port: int | None = strawberry.field(
        default=None, description="Port to expose it on, 1 to 65535. Default: 22 for SSH, 8888 for JUPYTER."
    )


def mapping(pairs: Sequence[KeyValueInput]) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}


def are_unique(pairs: Sequence[KeyValueInput]) -> bool:
    return len({pair.key for pair in pairs}) == len(pairs)


def stated_secrets(pairs: Sequence[EnvVariableInput]) -> tuple[tuple[str, bool], ...]:
    """Whether a variable is secret, where the caller says so."""
    return tuple(sorted((each.key, each.secret) for each in pairs if each.secret is not None))


def build_input(cls: type, value: Mapping[str, Any], context: InputContext) -> object:
    """Strawberry's `from_input` hook: the same object as without it, with field types resolved once.

    Strawberry resolves the type of each field for each request: 290 us for a create, 25 us this way.
    """
    fields, defaults = _fields_of(cls)
    values: dict[str, Any] = dict(defaults)
    for python_name, name, type_ in fields:
        if name in value:
            given = value[name]
            values[python_name] = given if type_ is None or given is None else context.convert(given, type_, name)
    return cls(**values)


@cache
def _fields_of(cls: type) -> tuple[list[tuple[str, str, Any]], dict[str, None]]:
    """Python name, GraphQL name and type of each field, None for types that need no conversion; implicit nulls."""
    definition, names = get_object_definition(cls, strict=True), NameConverter()
    fields: list[tuple[str, str, Any]] = []
    for field in definition.fields:
        type_: Any = field.resolve_type(type_definition=definition)
        plain = type_.of_type if type(type_) is StrawberryOptional else type_
        is_plain = plain in (str, int, float, bool, strawberry.ID)
        fields.append((field.python_name, names.from_field(field), None if is_plain else type_))
    return fields, {
        field.python_name: None
        for field in definition.fields
        if field.default_value is MISSING and cast("Any", field).default_factory is MISSING
    }


First = Annotated[int, strawberry.argument(description="Page size, 1 to 100.")]
After = Annotated[
    str | None,
    strawberry.argument(
        description="Cursor to continue after, such as the previous page's endCursor. Without it: the first page."
    ),
]
Id = Annotated[strawberry.ID, strawberry.argument(description="Id of the object.")]
Which = strawberry.argument(description="Filter; all given conditions must match.")
Input = strawberry.argument(description="Input of the mutation or query.")
