"""Types: Role, Project, Token, Viewer, AuditEvent."""

from datetime import datetime, timedelta
from operator import attrgetter
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.loaded import Lookup
from schema.pagination import CountedConnection, Edge
from schema.types.lifetime import LifetimePolicy
from schema.types.spend.budget import Budget
from schema.types.spend.quota import Quota
from schema.types.spend.report import SpendSummary
from server.auth.token_limits import read_limits
from server.conversion import convert
from server.db import tables
from server.enums import AuditOutcome, Role

described(
    Role,
    description="Role of a token. Each role includes the ones before it.",
    values={
        "READER": "Queries and subscriptions.",
        "OPERATOR": "Also mutations: create, start, stop, delete, retry.",
        "ADMIN": "Also tokens and webhook secret of the project. An ADMIN of the project `default` administers the "
        "server.",
    },
)

described(
    AuditOutcome,
    description="What a call of a mutation came to.",
    values={
        "ACCEPTED": "It was done, or accepted to be done.",
        "VALIDATED": "A dry run with `validateOnly` that found no problem.",
        "REFUSED": "It was refused and changed nothing; `errorCode` has the reason.",
        "FAILED": "It ended with an error of the server, the database or the provider.",
        "OTHER": "An outcome that this server does not know.",
    },
)


@strawberry.type(
    description="A project owns instances, operations, webhooks and tokens. Projects can't see each other's data."
)
class Project(Node):
    row_id: strawberry.Private[UUID]
    name: str = strawberry.field(description="Unique name, 1 to 100 characters; never changes.")
    created_at: datetime = strawberry.field(description="Creation time.")

    @strawberry.field(description="Rules for the lifetimes of its instances.")
    async def lifetime_policy(self, info: Info) -> LifetimePolicy:
        return LifetimePolicy.of(await info.context.loaders.lifetime_policy.load(self.row_id))

    @strawberry.field(description="What it spends. Also a subscription.")
    async def spend(self, info: Info) -> SpendSummary:
        summary, cursor = await info.context.loaders.spend_summary.load(self.row_id)
        return SpendSummary.of(summary, info.context.state_cursor(cursor))

    @classmethod
    def of(cls, row: tables.ProjectLike) -> "Project":
        return convert(cls, row, row_id=row.id, id=strawberry.ID(ids.format_id(ids.PROJECT, row.id)))


_ALLOWANCE = attrgetter("token_allowance")
_TOKEN_ROW_ID = attrgetter("token_row_id")
OWN_BUDGET = Lookup(
    _ALLOWANCE, _TOKEN_ROW_ID, lambda own: None if own[0] is None else Budget.of(own[0]), is_shared=True
)
OWN_QUOTA = Lookup(_ALLOWANCE, _TOKEN_ROW_ID, lambda own: None if own[1] is None else Quota.of(own[1]), is_shared=True)


@strawberry.type(description="What a token may do at most; null is no limit.")
class TokenLimits:
    token_row_id: strawberry.Private[UUID]
    max_duration: timedelta | None = strawberry.field(description="Longest run of what it creates, starts or extends.")
    product_names: list[str] | None = strawberry.field(description="Products that it may create and start.")
    regions: list[str] | None = strawberry.field(description="Regions in which it may create and start.")

    own_instances_only: bool = strawberry.field(
        description="Whether the instances of other tokens are hidden from it, and their operations, events and costs."
    )

    @strawberry.field(
        description="What it may spend: the oldest budget of its own. updateBudget changes it.",
        metadata=OWN_BUDGET.metadata,
    )
    async def budget(self, info: Info) -> Budget | None:
        return await OWN_BUDGET.load(self, info)

    @strawberry.field(
        description="How many machines it may have at once, at which price. setQuota changes it.",
        metadata=OWN_QUOTA.metadata,
    )
    async def quota(self, info: Info) -> Quota | None:
        return await OWN_QUOTA.load(self, info)

    @classmethod
    def of(cls, row: tables.TokenLike) -> "TokenLimits":
        stored = read_limits(row.limits)
        return cls(
            token_row_id=row.id,
            max_duration=stored.max_duration,
            product_names=None if stored.product_names is None else list(stored.product_names),
            regions=None if stored.regions is None else list(stored.regions),
            own_instances_only=stored.own_instances_only,
        )


@strawberry.type(description="An API token. Its secret is shown once, at creation; only a hash is stored.")
class Token(Node):
    project_row_id: strawberry.Private[UUID]
    maker_row_id: strawberry.Private[UUID | None]
    revoker_row_id: strawberry.Private[UUID | None]
    name: str = strawberry.field(description="Name, 1 to 100 characters, such as `backend of the shop`.")
    role: Role = strawberry.field(description="Role of the token.")
    hint: str = strawberry.field(description="Last four characters of the secret.")
    created_at: datetime = strawberry.field(description="Creation time.")
    expires_at: datetime | None = strawberry.field(description="Expiry time; null: never.")
    revoked_at: datetime | None = strawberry.field(description="When it was revoked; null if it was not.")
    last_used_at: datetime | None = strawberry.field(
        description="When it was last used, to about a minute; null: never."
    )
    limits: TokenLimits = strawberry.field(description="What it may do at most.")
    is_session: bool = strawberry.field(
        description="Whether it is the login of a person, whose secret is in a cookie; revoking it logs the person out."
    )

    @strawberry.field(description="Project of the token.")
    async def project(self, info: Info) -> Project:
        row = await info.context.loaders.project.load(self.project_row_id)
        if row is None:
            raise LookupError("a token without a project")
        return Project.of(row)

    @strawberry.field(
        description="Token it was created with; null if created on the command line or by a server administrator of "
        "another project."
    )
    async def created_by(self, info: Info) -> "Token | None":
        return await Token.load(info, self.maker_row_id)

    @strawberry.field(description="Token it was revoked with; null in the same cases and if not revoked.")
    async def revoked_by(self, info: Info) -> "Token | None":
        return await Token.load(info, self.revoker_row_id)

    @classmethod
    async def load(cls, info: Info, token_id: UUID | None) -> "Token | None":
        """A token of the caller's project."""
        row = None if token_id is None else await info.context.loaders.token.load(token_id)
        return None if row is None else cls.of(row)

    @classmethod
    def of(cls, row: tables.TokenLike) -> "Token":
        return convert(
            cls,
            row,
            project_row_id=row.project_id,
            maker_row_id=row.created_by,
            revoker_row_id=row.revoked_by,
            id=strawberry.ID(ids.format_id(ids.TOKEN, row.id)),
            role=Role(row.role),
            limits=TokenLimits.of(row),
        )


@strawberry.type(description="The caller.")
class Viewer:
    token: Token = strawberry.field(description="Token of this request.")
    project: Project = strawberry.field(description="Project of the token; all visible data belongs to it.")
    role: Role = strawberry.field(description="Role of the token.")

    @strawberry.field(
        description="Whether this is an ADMIN of the project `default`, who may also create projects and their tokens, "
        "pause jobs, clear caches and adopt machines."
    )
    async def runs_server(self, info: Info) -> bool:
        return await info.context.is_server_admin()


@strawberry.type(description="A token with its cursor.")
class TokenEdge(Edge[Token]):
    pass


@strawberry.type(description="A page of tokens.")
class TokenConnection(CountedConnection[TokenEdge, Token]):
    pass


@strawberry.type(description="A project with its cursor.")
class ProjectEdge(Edge[Project]):
    pass


@strawberry.type(description="A page of projects.")
class ProjectConnection(CountedConnection[ProjectEdge, Project]):
    pass


@strawberry.type(description="One call of a mutation.")
class AuditEvent:
    token_row_id: strawberry.Private[UUID]
    created_at: datetime = strawberry.field(description="When it was recorded.")
    project_id: strawberry.ID = strawberry.field(description="Id of the caller's project.")
    token_id: strawberry.ID = strawberry.field(description="Id of the caller's token.")
    request_id: str = strawberry.field(description="Id of the request, as in the response and in the server's log.")
    mutation: str = strawberry.field(description="Name of the mutation, such as createInstance.")
    input_digest: str = strawberry.field(
        description="Digest of the arguments: equal for equal arguments. No value can be read from it."
    )
    target: str | None = strawberry.field(
        description="Id of the object that the request named, or of the instance that it created; null if there is "
        "none, or several."
    )
    outcome: AuditOutcome = strawberry.field(description="What it came to.")
    error_code: str | None = strawberry.field(description="Code of the first error if it was refused or failed.")

    @strawberry.field(description="The caller's token; null if it belongs to another project.")
    async def token(self, info: Info) -> Token | None:
        return await Token.load(info, self.token_row_id)

    @classmethod
    def of(cls, row: tables.AuditEventRow) -> "AuditEvent":
        return convert(
            cls,
            row,
            token_row_id=row.token_id,
            project_id=strawberry.ID(ids.format_id(ids.PROJECT, row.project_id)),
            token_id=strawberry.ID(ids.format_id(ids.TOKEN, row.token_id)),
            input_digest=row.input_digest.hex(),
            outcome=AuditOutcome(row.outcome),
        )


@strawberry.type(description="An audit event with its cursor.")
class AuditEventEdge(Edge[AuditEvent]):
    pass


@strawberry.type(description="A page of audit events.")
class AuditEventConnection(CountedConnection[AuditEventEdge, AuditEvent]):
    pass
