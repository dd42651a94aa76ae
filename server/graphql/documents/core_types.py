"""Typed access to parts of the GraphQL library that are not typed."""

from typing import Any, cast

from graphql import GraphQLArgument, GraphQLField, GraphQLNamedType, GraphQLSchema, get_named_type
from strawberry import Schema


def core_of(schema: Schema) -> GraphQLSchema:
    return schema._schema  # pyright: ignore[reportPrivateUsage] - it has no other name


def type_of(field: GraphQLField | GraphQLArgument) -> Any:
    return field.type  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def named(type: Any) -> GraphQLNamedType:
    """The type inside lists and non-null wrappers."""
    return cast("GraphQLNamedType", get_named_type(type))
