"""The caller of a request."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from server.auth.token_limits import NO_LIMITS, TokenLimits
from server.db.tables import Instance, ProjectRow, TokenRow
from server.enums import Role

RANK = {role: place for place, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a token: its project and role."""

    project_id: UUID
    token_id: UUID
    role: Role
    expires_at: datetime | None = None  # for WebSockets, which may outlive it
    limits: TokenLimits = NO_LIMITS
    # The rows that it was found by, as old as the caller itself; None for a caller that no token has named.
    token: TokenRow | None = field(default=None, compare=False, repr=False)
    project: ProjectRow | None = field(default=None, compare=False, repr=False)

    @property
    def owner_id(self) -> UUID | None:
        """This caller's token if it sees only the instances that it created; None if it sees all of its project."""
        return self.token_id if self.limits.own_instances_only else None

    @property
    def tokens_expire_at(self) -> datetime | None:
        """When tokens that this caller creates expire at the latest."""
        return None if self.token is not None and self.token.is_session else self.expires_at

    def sees(self, instance: Instance) -> bool:
        """Whether the instance exists for this caller."""
        is_hidden = self.owner_id is not None and instance.owner_token_id != self.owner_id
        return instance.project_id == self.project_id and not is_hidden

    def may(self, role: Role) -> bool:
        """Whether this caller may do what `role` may."""
        return RANK[self.role] >= RANK[role]
