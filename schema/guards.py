"""Who may call a field: READER for queries and subscriptions, OPERATOR for what changes something."""

from typing import Any

from graphql import GraphQLError
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension

from schema.context import Info
from server.words import Role


class Requires(FieldExtension):
    """Refuses callers below a role, before anything else happens."""

    def __init__(self, role: Role) -> None:
        self._role = role

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        if not info.context.caller.may(self._role):
            message = f"This needs a token with the role {self._role}."
            raise GraphQLError(message, extensions={"code": "FORBIDDEN", "retryable": False})
        return await next_(source, info, **kwargs)
