"""What ADMINs can read about tokens and projects."""

from typing import Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.arguments import After, First, Which
from schema.context import Info
from schema.guards import Requires
from schema.paging import check_first, cursor_of, read_cursor
from schema.types.page import PageInfo
from schema.types.token import Project, ProjectConnection, ProjectEdge, Token, TokenConnection, TokenEdge
from server.auth import projects, reads
from server.errors import NotFound
from server.words import Role


@strawberry.input(description="Which tokens; without it, all of the project. All that is given must be so.")
class TokenFilter:
    roles: list[Role] | None = strawberry.field(default=None, description="Only with one of these roles.")
    valid: bool | None = strawberry.field(
        default=None, description="true: only those that are good; false: only those that are expired or revoked."
    )

    def to_read(self) -> reads.TokenFilter:
        return reads.TokenFilter(roles=tuple(self.roles or ()), is_valid=self.valid)


@strawberry.type
class TokenQueries:
    @strawberry.field(
        description="Tokens of your project, newest first; with `projectId` those of another, for an ADMIN of the "
        "project `default`. Needs the role ADMIN.",
        extensions=[Requires(Role.ADMIN)],
    )
    async def tokens(
        self,
        info: Info,
        project_id: Annotated[
            strawberry.ID | None, strawberry.argument(description="Whose; without it, your project's.")
        ] = None,
        filter: Annotated[TokenFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> TokenConnection:
        size = check_first(first)
        project = await _project(info, project_id)
        wanted = (filter or TokenFilter()).to_read()
        async with info.context.read() as session:
            rows = await reads.page_of_tokens(
                session,
                project_id=project,
                wanted=wanted,
                first=size + 1,
                after=None if after is None else read_cursor(after),
            )
        edges = [TokenEdge(cursor=cursor_of(row.created_at, row.id), node=Token.of(row)) for row in rows[:size]]
        return TokenConnection(
            project_row_id=project,
            wanted=wanted,
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo.of(edges, has_more=len(rows) > size, after=after),
        )

    @strawberry.field(
        description="Projects, newest first: your own, or all of them for an ADMIN of the project `default`. Needs the "
        "role ADMIN.",
        extensions=[Requires(Role.ADMIN)],
    )
    async def projects(self, info: Info, first: First = 50, after: After = None) -> ProjectConnection:
        size = check_first(first)
        only = None if await info.context.runs_the_server() else info.context.caller.project_id
        async with info.context.read() as session:
            rows = await projects.page_of_projects(
                session, only=only, first=size + 1, after=None if after is None else read_cursor(after)
            )
        edges = [ProjectEdge(cursor=cursor_of(row.created_at, row.id), node=Project.of(row)) for row in rows[:size]]
        return ProjectConnection(
            only=only,
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo.of(edges, has_more=len(rows) > size, after=after),
        )


async def _project(info: Info, id: strawberry.ID | None) -> UUID:
    """The project meant, or one that nobody has."""
    own = info.context.caller.project_id
    if id is None:
        return own
    try:
        project_id = ids.read(ids.PROJECT, id)
    except NotFound:
        return ids.NOBODY
    return project_id if project_id == own or await info.context.runs_the_server() else ids.NOBODY
