"""Declares a mutation: who may call it. Its refusals are returned in the payload's `errors`."""

from collections.abc import Callable
from typing import Any

import strawberry
from strawberry.extensions.field_extension import FieldExtension

from schema.errors import RefusalsAsErrors
from schema.permissions import Requires
from server.enums import Role


def mutation(description: str, *requirements: FieldExtension) -> Callable[[Callable[..., Any]], Any]:
    """For resolvers of mutations. Without `requirements`, callers need the role OPERATOR."""
    required = requirements or (Requires(Role.OPERATOR),)
    return strawberry.mutation(description=description, extensions=[*required, RefusalsAsErrors()])
