"""Mutations: createToken, revokeToken, createProject."""

from datetime import datetime
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.inputs import Input, MutationInput
from schema.permissions import Requires, RequiresServerAdmin
from schema.types.token import Project, Token
from server.auth import projects
from server.auth.token_admin import TokenDraft, issue_token, revoke_token
from server.enums import Role


@strawberry.input(description="The token to create.")
class CreateTokenInput(MutationInput):
    name: str = strawberry.field(description="Name, 1 to 100 characters; shown with every change made with the token.")
    role: Role = strawberry.field(default=Role.OPERATOR, description="Role of the token.")
    expires_at: datetime | None = strawberry.field(
        default=None,
        description="Expiry time. Default: never. A token never outlives the token that created it.",
    )
    project_id: strawberry.ID | None = strawberry.field(
        default=None,
        description="Project of the token. Default: yours. Another one needs the role ADMIN of the project `default`.",
    )


@strawberry.type(description="The new token and its secret.")
class CreateTokenPayload(Payload):
    token: Token | None = strawberry.field(default=None, description="The token.")
    secret: str | None = strawberry.field(
        default=None, description="The secret, sent as `Authorization: Bearer pl_...`. Shown only once."
    )


@strawberry.input(description="The token to revoke.")
class RevokeTokenInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the token; it may be your own.")


@strawberry.type(description="The revoked token.")
class RevokeTokenPayload(Payload):
    token: Token | None = strawberry.field(default=None, description="The revoked token.")


@strawberry.input(description="The project to create.")
class CreateProjectInput(MutationInput):
    name: str = strawberry.field(description="Unique name, 1 to 100 characters. It can't be changed later.")


@strawberry.type(description="The new project.")
class CreateProjectPayload(Payload):
    project: Project | None = strawberry.field(
        default=None,
        description="The project. It has no token yet: create one with `createToken(input: {projectId: ...})`.",
    )


@strawberry.type
class TokenMutations:
    @strawberry.mutation(
        description="Create a token. Its secret is returned only once. Needs the role ADMIN.",
        extensions=[Requires(Role.ADMIN), RefusalsAsErrors()],
    )
    async def create_token(self, info: Info, input: Annotated[CreateTokenInput, Input]) -> CreateTokenPayload:
        project = input.project_id
        draft = TokenDraft(
            name=input.name,
            role=input.role,
            project_id=None if project is None else ids.parse(ids.PROJECT, project, ("input", "projectId")),
            expires_at=input.expires_at,
        )
        runs_server = await info.context.is_server_admin()
        limit = info.context.services.settings.tokens_per_project
        async with info.context.write() as session:
            issued = await issue_token(session, draft, by=info.context.caller, is_server_admin=runs_server, limit=limit)
        return CreateTokenPayload(token=Token.of(issued.token), secret=issued.secret)

    @strawberry.mutation(
        description="Revoke a token of your project. It is rejected at once and its connections are closed within "
        "seconds; its operations continue. Revoking twice changes nothing. Needs the role ADMIN.",
        extensions=[Requires(Role.ADMIN), RefusalsAsErrors()],
    )
    async def revoke_token(self, info: Info, input: Annotated[RevokeTokenInput, Input]) -> RevokeTokenPayload:
        token_id = ids.parse(ids.TOKEN, input.id, ("input", "id"))
        runs_server = await info.context.is_server_admin()
        async with info.context.write() as session:
            row = await revoke_token(session, token_id, by=info.context.caller, is_server_admin=runs_server)
        info.context.services.tokens.forget()  # at once in this process; others are notified
        return RevokeTokenPayload(token=Token.of(row))

    @strawberry.mutation(
        description="Create a project. Needs the role ADMIN of the project `default`.",
        extensions=[RequiresServerAdmin(), RefusalsAsErrors()],
    )
    async def create_project(self, info: Info, input: Annotated[CreateProjectInput, Input]) -> CreateProjectPayload:
        async with info.context.write() as session:
            row = await projects.create_project(session, input.name)
        return CreateProjectPayload(project=Project.of(row))
