"""Mutations: createToken, revokeToken, createProject."""

from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import Input, MoneyInput, MutationInput
from schema.permissions import Requires, RequiresServerAdmin, mutation
from schema.types.money import MICROS_PER_E5
from schema.types.token import Project, Token
from server.auth import projects
from server.auth.token_admin import TokenDraft, issue_token, revoke_token
from server.auth.token_limits import Allowance, TokenLimits, limits_problem
from server.enums import Role
from server.errors import Invalid
from server.spend.token_allowance import add_allowance


@strawberry.input(description="What a token for a program may do at most; not for ADMIN tokens.")
class TokenLimitsInput:
    budget: MoneyInput | None = strawberry.field(
        default=None, description="What it may spend in total, in USD: a budget of its own, with the action BLOCK."
    )
    max_instances: int | None = strawberry.field(
        default=None, description="Most instances with a machine at once: a quota of its own."
    )
    max_price_per_hour: MoneyInput | None = strawberry.field(
        default=None, description="Highest price per hour of all its machines together: in the same quota."
    )
    max_duration: timedelta | None = strawberry.field(
        default=None,
        description="Longest run of what it creates, starts or extends, 300 s to 90 days. Also the default.",
    )
    product_names: list[str] | None = strawberry.field(
        default=None, description="Products that it may create and start, 1 to 100."
    )
    regions: list[str] | None = strawberry.field(
        default=None, description="Regions in which it may create and start, 1 to 100."
    )

    own_instances_only: bool = strawberry.field(
        default=False,
        description="Whether the instances of other tokens are hidden from it, and their operations, events and costs.",
    )

    def to_limits(self) -> TokenLimits:
        return TokenLimits(
            max_duration=self.max_duration,
            product_names=None if self.product_names is None else tuple(self.product_names),
            regions=None if self.regions is None else tuple(self.regions),
            own_instances_only=self.own_instances_only,
        )

    def to_allowance(self) -> Allowance:
        price = _micros(self.max_price_per_hour, "maxPricePerHour")
        return Allowance(
            _micros(self.budget, "budget"), self.max_instances, None if price is None else price // MICROS_PER_E5
        )


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
    limits: TokenLimitsInput | None = strawberry.field(default=None, description="What it may do at most.")


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
    @mutation("Create a token. Its secret is returned only once. Needs the role ADMIN.", Requires(Role.ADMIN))
    async def create_token(self, info: Info, input: Annotated[CreateTokenInput, Input]) -> CreateTokenPayload:
        project, limits = input.project_id, input.limits or TokenLimitsInput()
        settings = info.context.services.settings
        draft = TokenDraft(
            name=input.name,
            role=input.role,
            project_id=None if project is None else ids.parse(ids.PROJECT, project, ("input", "projectId")),
            expires_at=input.expires_at,
            limits=limits.to_limits(),
            allowance=limits.to_allowance(),
        )
        runs_server = await info.context.is_server_admin()
        async with info.context.write() as session:
            issued = await issue_token(
                session,
                draft,
                by=info.context.caller,
                is_server_admin=runs_server,
                limit=settings.tokens_per_project,
            )
            await add_allowance(session, issued.token, draft.allowance, horizon=settings.budget_horizon)
        return CreateTokenPayload(token=Token.of(issued.token), secret=issued.secret)

    @mutation(
        "Revoke a token of your project. It is rejected at once and its connections are closed within "
        "seconds; its operations continue. Revoking twice changes nothing. Needs the role ADMIN.",
        Requires(Role.ADMIN),
    )
    async def revoke_token(self, info: Info, input: Annotated[RevokeTokenInput, Input]) -> RevokeTokenPayload:
        token_id = ids.parse(ids.TOKEN, input.id, ("input", "id"))
        runs_server = await info.context.is_server_admin()
        async with info.context.write() as session:
            row = await revoke_token(session, token_id, by=info.context.caller, is_server_admin=runs_server)
        info.context.services.tokens.forget()  # at once in this process; others are notified
        return RevokeTokenPayload(token=Token.of(row))

    @mutation("Create a project. Needs the role ADMIN of the project `default`.", RequiresServerAdmin())
    async def create_project(self, info: Info, input: Annotated[CreateProjectInput, Input]) -> CreateProjectPayload:
        async with info.context.write() as session:
            row = await projects.create_project(session, input.name)
        return CreateProjectPayload(project=Project.of(row))


def _micros(amount: MoneyInput | None, field: str) -> int | None:
    if amount is not None and amount.currency != "USD":
        raise Invalid([limits_problem("The provider bills in USD.", field, "currency")])
    return None if amount is None else amount.amount_micros
