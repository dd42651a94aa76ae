"""Query: auditEvents."""

from datetime import datetime
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.filters import check_values
from schema.inputs import After, First, Which
from schema.permissions import Requires, query
from schema.types.token import AuditEvent, AuditEventConnection, AuditEventEdge
from server.audit import queries
from server.db import tables
from server.enums import AuditOutcome, Role


@strawberry.input(description="Filter for audit events; all given conditions must match.")
class AuditFilter:
    project_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the caller's project.")
    token_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the caller's token.")
    mutations: list[str] | None = strawberry.field(default=None, description="Any of these mutations, 1 to 100.")
    outcomes: list[AuditOutcome] | None = strawberry.field(default=None, description="Any of these outcomes.")
    target: strawberry.ID | None = strawberry.field(default=None, description="Id of the object it was about.")
    since: datetime | None = strawberry.field(default=None, description="From this time on.")
    until: datetime | None = strawberry.field(default=None, description="Before this time.")

    async def to_domain(self, info: Info) -> queries.AuditFilter:
        check_values(self.mutations, texts=[*(self.mutations or ()), self.target or ""])
        own = info.context.caller.project_id
        wanted = None if self.project_id is None else ids.parse_or_unused(ids.PROJECT, self.project_id)
        if not await info.context.is_server_admin():
            wanted = own if wanted in (None, own) else ids.UNUSED_ID
        return queries.AuditFilter(
            project_id=wanted,
            token_id=None if self.token_id is None else ids.parse_or_unused(ids.TOKEN, self.token_id),
            mutations=tuple(self.mutations or ()),
            outcomes=tuple(self.outcomes or ()),
            target=self.target,
            since=self.since,
            until=self.until,
        )


@strawberry.type
class AuditQueries:
    @query(
        "Calls of mutations, newest first: which token, what it came to. Needs the role ADMIN. Of your "
        "project; for an ADMIN of the project `default`, of all projects.",
        Requires(Role.ADMIN),
    )
    async def audit_events(
        self, info: Info, filter: Annotated[AuditFilter | None, Which] = None, first: First = 50, after: After = None
    ) -> AuditEventConnection:
        wanted = await (filter or AuditFilter()).to_domain(info)
        return await AuditEventConnection.newest_first(
            info,
            tables.AuditEventRow,
            queries.conditions_on_audit(wanted),
            AuditEventEdge,
            AuditEvent.of,
            first=first,
            after=after,
        )
