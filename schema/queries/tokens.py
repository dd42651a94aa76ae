"""Queries: tokens, projects."""

from typing import Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.inputs import After, First, Which
from schema.permissions import Requires, query
from schema.types.token import Project, ProjectConnection, ProjectEdge, Token, TokenConnection, TokenEdge
from server.auth import token_admin
from server.db import tables
from server.db.pages import Where
from server.enums import Role


@strawberry.input(
    description="Filter for tokens; all given conditions must match. Without a filter: all of the project."
)
class TokenFilter:
    roles: list[Role] | None = strawberry.field(default=None, description="Any of these roles.")
    valid: bool | None = strawberry.field(
        default=None, description="true: only valid tokens; false: only expired or revoked ones."
    )

    def to_domain(self) -> token_admin.TokenFilter:
        return token_admin.TokenFilter(roles=tuple(self.roles or ()), is_valid=self.valid)


@strawberry.type
class TokenQueries:
    @query(
        "Tokens of your project, newest first. Needs the role ADMIN. `projectId` selects another "
        "project and needs the role ADMIN of the project `default`.",
        Requires(Role.ADMIN),
    )
    async def tokens(
        self,
        info: Info,
        project_id: Annotated[
            strawberry.ID | None, strawberry.argument(description="Id of the project. Default: yours.")
        ] = None,
        filter: Annotated[TokenFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> TokenConnection:
        conditions = token_admin.conditions_on_tokens(
            await _project(info, project_id), (filter or TokenFilter()).to_domain()
        )
        return await TokenConnection.newest_first(
            info, tables.TokenRow, conditions, TokenEdge, Token.of, first=first, after=after
        )

    @query(
        "Your project, or all projects for an ADMIN of the project `default`, newest first. Needs the role ADMIN.",
        Requires(Role.ADMIN),
    )
    async def projects(self, info: Info, first: First = 50, after: After = None) -> ProjectConnection:
        where = Where()
        if not await info.context.is_server_admin():
            where = where.given("id = {}", info.context.caller.project_id)
        return await ProjectConnection.newest_first(
            info, tables.ProjectRow, where, ProjectEdge, Project.of, first=first, after=after
        )


async def _project(info: Info, id: strawberry.ID | None) -> UUID:
    """The requested project if the caller may see it, else an id that no project has."""
    own = info.context.caller.project_id
    project_id = own if id is None else ids.parse_or_unused(ids.PROJECT, id)
    return project_id if project_id == own or await info.context.is_server_admin() else ids.UNUSED_ID
