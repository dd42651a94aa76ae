"""Who is asking."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from server.words import Role


@dataclass(frozen=True, slots=True)
class Caller:
    """A token's owner, as the rest of the code sees it."""

    project_id: UUID
    token_id: UUID
    role: Role
    expires_at: datetime | None = None  # requests are over before that matters; sockets are not

    def may(self, role: Role) -> bool:
        """Whether this caller may do what `role` may."""
        order = list(Role)
        return order.index(self.role) >= order.index(role)
