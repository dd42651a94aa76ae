"""What ADMINs can ask of tokens and projects."""

from datetime import datetime
from typing import Annotated

import strawberry

from schema import ids
from schema.arguments import Input
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires, RunsServer
from schema.inputs import MutationInput
from schema.types.token import Project, Token
from server.auth import projects
from server.auth.issue import TokenDraft, issue_token, revoke_token
from server.words import Role


@strawberry.input(description="The token to make.")
class CreateTokenInput(MutationInput):
    name: str = strawberry.field(description="What it is for, 1 to 100 characters; shown beside everything it does.")
    role: Role = strawberry.field(default=Role.OPERATOR, description="What it may do.")
    expires_at: datetime | None = strawberry.field(
        default=None,
        description="From when on it opens nothing; without it, never. A token never outlives the one that made it.",
    )
    project_id: strawberry.ID | None = strawberry.field(
        default=None,
        description="Whose it is; without it, your project's. Another's only for an ADMIN of the project `default`.",
    )


@strawberry.type(description="The token, and its secret.")
class CreateTokenPayload(Payload):
    token: Token | None = strawberry.field(default=None, description="The token.")
    secret: str | None = strawberry.field(
        default=None, description="What to send as `Authorization: Bearer pl_...`. It is shown only here."
    )


@strawberry.input(description="The token to revoke.")
class RevokeTokenInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id. Your own is possible, too.")


@strawberry.type(description="The token that opens nothing any more.")
class RevokeTokenPayload(Payload):
    token: Token | None = strawberry.field(default=None, description="The token, revoked.")


@strawberry.input(description="The project to make.")
class CreateProjectInput(MutationInput):
    name: str = strawberry.field(description="1 to 100 characters, unique. It can't be changed.")


@strawberry.type(description="The project that was made.")
class CreateProjectPayload(Payload):
    project: Project | None = strawberry.field(
        default=None, description="The project. It has no token yet: `createToken(input: {projectId: ...})` makes one."
    )


@strawberry.type
class TokenMutations:
    @strawberry.mutation(
        description="Make a token. Its secret is in the answer and nowhere else. Needs the role ADMIN.",
        extensions=[Requires(Role.ADMIN), RefusalsAsErrors()],
    )
    async def create_token(self, info: Info, input: Annotated[CreateTokenInput, Input]) -> CreateTokenPayload:
        project = input.project_id
        draft = TokenDraft(
            name=input.name,
            role=input.role,
            project_id=None if project is None else ids.read(ids.PROJECT, project, ("input", "projectId")),
            expires_at=input.expires_at,
        )
        runs_server = await info.context.runs_the_server()
        async with info.context.write() as session:
            issued = await issue_token(session, draft, by=info.context.caller, runs_the_server=runs_server)
        return CreateTokenPayload(token=Token.of(issued.token), secret=issued.secret)

    @strawberry.mutation(
        description="Revoke a token of your project: it opens nothing from now on, and its open connections are closed "
        "within seconds. What it has asked for goes on. Revoking twice changes nothing. Needs the role ADMIN.",
        extensions=[Requires(Role.ADMIN), RefusalsAsErrors()],
    )
    async def revoke_token(self, info: Info, input: Annotated[RevokeTokenInput, Input]) -> RevokeTokenPayload:
        token_id = ids.read(ids.TOKEN, input.id, ("input", "id"))
        runs_server = await info.context.runs_the_server()
        async with info.context.write() as session:
            row = await revoke_token(session, token_id, by=info.context.caller, runs_the_server=runs_server)
        info.context.services.tokens.forget()  # here at once; other processes hear of it
        return RevokeTokenPayload(token=Token.of(row))

    @strawberry.mutation(
        description="Make a project. Needs the role ADMIN of the project `default`.",
        extensions=[RunsServer(), RefusalsAsErrors()],
    )
    async def create_project(self, info: Info, input: Annotated[CreateProjectInput, Input]) -> CreateProjectPayload:
        async with info.context.write() as session:
            row = await projects.create_project(session, input.name)
        return CreateProjectPayload(project=Project.of(row))
