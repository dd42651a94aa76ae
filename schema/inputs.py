"""Inputs and arguments shared by several fields."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import cache
from typing import Annotated, Any, cast

import strawberry
from pydantic.alias_generators import to_camel
from strawberry.schema.name_converter import NameConverter
from strawberry.types.arguments import InputContext
from strawberry.types.base import StrawberryOptional, get_object_definition

from schema import ids
from schema.enums import described
from schema.scalars import BigInt
from server.enums import ToolName
from server.errors import Invalid, Problem
from server.instances.commands.lifecycle import Target

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


@strawberry.input(one_of=True, description="An instance, by id or by name.")
class InstanceReference:
    id: strawberry.ID | None = strawberry.field(default=strawberry.UNSET, description="Id of the instance.")
    name: str | None = strawberry.field(
        default=strawberry.UNSET, description="Name of an instance that is not deleted."
    )


@strawberry.input
class TargetInput(MutationInput):
    """Names one instance; `updateInstance` has a `name` of its own."""

    instance: InstanceReference | None = strawberry.field(
        default=None, description="Id or name of the instance. Give exactly one of `instance`, `id` and `name`."
    )
    id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of the instance; short for `instance: {id: ...}`."
    )
    name: str | None = strawberry.field(
        default=None, description="Name of the instance; short for `instance: {name: ...}`."
    )

    def target(self) -> Target:
        return target_of(self.instance, id=self.id, name=self.name)


@strawberry.input
class InstanceInput(TargetInput):
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


def target_of(instance: InstanceReference | None, **short: str | None) -> Target:
    """Raises Invalid unless exactly one is given. `short` are fields of the input; all but `name` are ids."""
    given = [(("input", field), field, value) for field, value in short.items() if value is not None]
    if instance is not None:
        given += [
            (("input", "instance", field), field, value)
            for field, value in vars(instance).items()
            if value is not strawberry.UNSET
        ]
    if len(given) != 1:
        *fields, last = [f"`{to_camel(field)}`" for field in ("instance", *short)]
        path = ("input", to_camel(next(iter(short))))
        message = f"Give exactly one of {', '.join(fields)} and {last}."
        raise Invalid([Problem("INVALID_TARGET", message, path)])
    ((path, field, value),) = given
    path = tuple(to_camel(each) for each in path)
    return Target(name=value, path=path) if field == "name" else Target(ids.parse(ids.INSTANCE, value, path), path=path)


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


@strawberry.input(description="A network volume to mount.")
class VolumeMountInput:
    id: strawberry.ID = strawberry.field(description="Id of the volume.")
    mount_path: str = strawberry.field(description="Absolute path in the container, such as /data.")


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
