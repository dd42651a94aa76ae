"""Where the GraphQL library's types say Unknown, and strict checking would have nothing to hold on to."""

from typing import Any

from graphql import GraphQLArgument, GraphQLField


def type_of(field: GraphQLField | GraphQLArgument) -> Any:
    return field.type  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
