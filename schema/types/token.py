"""Who may call, and for whom."""

from datetime import datetime
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.types.node import Node
from schema.types.page import PageInfo
from schema.words import described
from server.auth import projects, reads
from server.db import tables
from server.words import Role

described(
    Role,
    description="What a token may do. Each role may do what those before it may.",
    values={
        "READER": "Read and watch.",
        "OPERATOR": "Also ask for things: create, start, stop, delete, retry.",
        "ADMIN": "Also rule over the project: its tokens and the secret of its webhooks. An ADMIN of the project "
        "`default` runs the server.",
    },
)


@strawberry.type(description="Owns instances and all that hangs on them. What one has is invisible to another.")
class Project(Node):
    row_id: strawberry.Private[UUID]
    name: str = strawberry.field(description="Unique, 1 to 100 characters; never changes.")
    created_at: datetime = strawberry.field(description="When it was made.")

    @classmethod
    def of(cls, row: tables.Project) -> "Project":
        return cls(
            row_id=row.id,
            id=strawberry.ID(ids.shown(ids.PROJECT, row.id)),
            name=row.name,
            created_at=row.created_at,
        )


@strawberry.type(description="What a caller presents. Its secret is shown once, when it is made; only a hash is kept.")
class Token(Node):
    project_row_id: strawberry.Private[UUID]
    maker_row_id: strawberry.Private[UUID | None]
    revoker_row_id: strawberry.Private[UUID | None]
    name: str = strawberry.field(description="What it is for, 1 to 100 characters, such as `backend of the shop`.")
    role: Role = strawberry.field(description="What it may do.")
    hint: str = strawberry.field(description="The last four characters of its secret, to tell it from others.")
    created_at: datetime = strawberry.field(description="When it was made.")
    expires_at: datetime | None = strawberry.field(description="From when on it opens nothing; null: never.")
    revoked_at: datetime | None = strawberry.field(description="When it was revoked, if it was.")
    last_used_at: datetime | None = strawberry.field(
        description="When it was last presented, to about a minute; null: never."
    )

    @strawberry.field(description="Whose it is.")
    async def project(self, info: Info) -> Project:
        row = await info.context.loaders.project.load(self.project_row_id)
        if row is None:
            raise LookupError("a token without a project")
        return Project.of(row)

    @strawberry.field(
        description="The token it was made with; null where it was made at the terminal, or by those who run the "
        "server for another project."
    )
    async def created_by(self, info: Info) -> "Token | None":
        return await Token.found(info, self.maker_row_id)

    @strawberry.field(description="The token it was revoked with; null in the same cases, and while it is good.")
    async def revoked_by(self, info: Info) -> "Token | None":
        return await Token.found(info, self.revoker_row_id)

    @classmethod
    async def found(cls, info: Info, token_id: UUID | None) -> "Token | None":
        """One of the caller's project."""
        row = None if token_id is None else await info.context.loaders.token.load(token_id)
        return None if row is None else cls.of(row)

    @classmethod
    def of(cls, row: tables.Token) -> "Token":
        return cls(
            project_row_id=row.project_id,
            maker_row_id=row.created_by,
            revoker_row_id=row.revoked_by,
            id=strawberry.ID(ids.shown(ids.TOKEN, row.id)),
            name=row.name,
            role=Role(row.role),
            hint=row.hint,
            created_at=row.created_at,
            expires_at=row.expires_at,
            revoked_at=row.revoked_at,
            last_used_at=row.last_used_at,
        )


@strawberry.type(description="Who is asking.")
class Viewer:
    token: Token = strawberry.field(description="The token of this request.")
    project: Project = strawberry.field(description="The project that it belongs to; all that is seen is this one's.")
    role: Role = strawberry.field(description="What it may do.")
    runs_server: bool = strawberry.field(
        description="Whether this is an ADMIN of the project `default`, who may also make projects, give out tokens "
        "for others, pause jobs, empty caches and take machines over."
    )


@strawberry.type(description="One token of a page.")
class TokenEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: Token = strawberry.field(description="The token.")


@strawberry.type(description="A page of tokens.")
class TokenConnection:
    project_row_id: strawberry.Private[UUID]
    wanted: strawberry.Private[reads.TokenFilter]
    edges: list[TokenEdge] = strawberry.field(description="The tokens with their cursors.")
    nodes: list[Token] = strawberry.field(description="The tokens alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")

    @strawberry.field(description="How many there are in all; counted only if asked for.")
    async def total_count(self, info: Info) -> int:
        async with info.context.read() as session:
            return await reads.count_tokens(session, project_id=self.project_row_id, wanted=self.wanted)


@strawberry.type(description="One project of a page.")
class ProjectEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: Project = strawberry.field(description="The project.")


@strawberry.type(description="A page of projects.")
class ProjectConnection:
    only: strawberry.Private[UUID | None]
    edges: list[ProjectEdge] = strawberry.field(description="The projects with their cursors.")
    nodes: list[Project] = strawberry.field(description="The projects alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")

    @strawberry.field(description="How many there are in all; counted only if asked for.")
    async def total_count(self, info: Info) -> int:
        async with info.context.read() as session:
            return await projects.count_projects(session, only=self.only)
