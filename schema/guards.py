"""Who may call a field: READER for queries and subscriptions, OPERATOR for what changes something."""

from typing import Any

from graphql import GraphQLError
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension

from schema.context import Info
from server.words import Role


class Requires(FieldExtension):
    """Refuses callers below a role, before anything else happens."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        if not info.context.caller.may(self.role):
            raise forbidden(f"This needs a token with the role {self.role}.")
        return await next_(source, info, **kwargs)


class RunsServer(FieldExtension):
    """Refuses all but those who run the server: what concerns every project is not for the ADMINs of one."""

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        await refuse_unless_running_the_server(info, "This")
        return await next_(source, info, **kwargs)


async def refuse_unless_running_the_server(info: Info, what: str) -> None:
    if not await info.context.runs_the_server():
        raise forbidden(f"{what} needs a token with the role ADMIN of the project `default`.")


def forbidden(message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"code": "FORBIDDEN", "retryable": False})
