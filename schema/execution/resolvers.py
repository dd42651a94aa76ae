"""Resolvers with what Strawberry does around them at every call done once: converters of arguments, the extensions.

What they do is the same. A field with anything that is not known here keeps the resolver that it has.
"""

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any, cast

from graphql import GraphQLObjectType, is_object_type
from strawberry import Schema
from strawberry.extensions.field_extension import FieldExtension, build_field_extension_resolvers
from strawberry.types.field import StrawberryField

from schema.execution.arguments import Converters, Unknown
from schema.execution.selections import DEFINITION

Resolve = Callable[..., Any]


def quicken(schema: Schema) -> int:
    """Put quick resolvers into the schema, where they fit; returns into how many fields."""
    core: Any = schema._schema  # pyright: ignore[reportPrivateUsage] - it has no other name
    converters = Converters(schema.config, schema.schema_converter.scalar_registry)
    changed = 0
    for type in core.type_map.values():
        if not is_object_type(type) or type is core.subscription_type or type.name.startswith("__"):
            continue
        changed += sum(_quicken(schema, field, converters) for field in _fields(type))
    return changed


def _fields(type: GraphQLObjectType) -> list[Any]:
    return list(type.fields.values())


def _quicken(schema: Schema, field: Any, converters: Converters) -> bool:
    definition = field.extensions.get(DEFINITION)
    if not isinstance(definition, StrawberryField) or not definition.is_async or _resolver_of(definition) is None:
        return False
    if schema.schema_converter._get_field_exception_handlers(definition):  # pyright: ignore[reportPrivateUsage]
        return False
    if any(type(each).map_arguments is not FieldExtension.map_arguments for each in definition.extensions):
        return False
    try:
        field.resolve = _quick(schema, definition, converters)
    except Unknown:
        return False
    return True


def _quick(schema: Schema, field: StrawberryField, converters: Converters) -> Resolve:
    convert = converters.of_field(field)
    resolver = _resolver_of(field)
    if resolver.parent_parameter or resolver.root_parameter:
        raise Unknown
    takes_self, info_parameter = bool(resolver.self_parameter), resolver.info_parameter
    if info_parameter is not None and info_parameter.name != "info":
        raise Unknown
    call: Any = resolver.wrapped_func
    takes_info = info_parameter is not None

    def innermost(source: Any, info: Any, **given: Any) -> Any:
        if takes_info:
            given["info"] = info
        return call(source, **given) if takes_self else call(**given)

    chain: Resolve = innermost
    for extension in build_field_extension_resolvers(field):
        chain = partial(extension, chain)
    info_class = schema.config.info_class

    async def resolve(source: Any, info: Any, **given: Any) -> Any:
        result = chain(source, info_class(_raw_info=info, _field=field), **convert(given))
        return await result if isawaitable(result) else result

    resolve._is_default = False  # type: ignore[attr-defined] # pyright: ignore[reportFunctionMemberAccess] - Strawberry's extensions ask for it
    return resolve


def _resolver_of(field: StrawberryField) -> Any:
    return cast("Any", field.base_resolver)  # pyright: ignore[reportUnknownMemberType]
