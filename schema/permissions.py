"""Declares queries, subscriptions and mutations, each with the role that its callers need."""

from collections.abc import Callable
from typing import Any

import strawberry
from graphql import GraphQLError
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension, SyncExtensionResolver

from schema.context import Info
from schema.errors import RefusalsAsErrors
from server.enums import Role


class Requires(FieldExtension):
    """Refuses callers below a role, before the resolver runs."""

    def __init__(self, role: Role) -> None:
        self.role = role

    def resolve(self, next_: SyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:
        if not info.context.caller.may(self.role):
            raise forbidden(f"This needs a token with the role {self.role}.")
        return next_(source, info, **kwargs)

    # Not a coroutine of its own, which every field would wait for: what it returns is awaited.
    resolve_async: Any = resolve


def query(description: str, *requirements: FieldExtension) -> Callable[[Callable[..., Any]], Any]:
    """Declares a field of Query. Without `requirements`, callers need the role READER."""
    return strawberry.field(description=description, extensions=list(requirements) or [Requires(Role.READER)])


def subscription(description: str, *requirements: FieldExtension) -> Callable[[Callable[..., Any]], Any]:
    """Declares a subscription. Without `requirements`, callers need the role READER."""
    return strawberry.subscription(description=description, extensions=list(requirements) or [Requires(Role.READER)])


def mutation(description: str, *requirements: FieldExtension) -> Callable[[Callable[..., Any]], Any]:
    """Declares a mutation, whose refusals are returned in the payload's `errors`. Without `requirements`, callers need
    the role OPERATOR."""
    required = requirements or (Requires(Role.OPERATOR),)
    return strawberry.mutation(description=description, extensions=[*required, RefusalsAsErrors()])


class RequiresWholeProject(FieldExtension):
    """Refuses tokens that see only their own instances, where a field is about all instances of the project."""

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        if info.context.caller.owner_id is not None:
            raise forbidden("This is not for a token that sees only its own instances.")
        return await next_(source, info, **kwargs)


class RequiresServerAdmin(FieldExtension):
    """Refuses callers that are not server administrators: an ADMIN of one project may not affect all projects."""

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        await require_server_admin(info, "This")
        return await next_(source, info, **kwargs)


async def require_server_admin(info: Info, what: str) -> None:
    if not await info.context.is_server_admin():
        raise forbidden(f"{what} needs a token with the role ADMIN of the project `default`.")


def forbidden(message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"code": "FORBIDDEN", "retryable": False})
