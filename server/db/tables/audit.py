"""Table of the audit log."""

from uuid import UUID

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped

from server.db.tables.base import Base, CreatedAt, Id, one_of
from server.enums import AuditOutcome


class AuditEvent(Base):
    """One call of a mutation. No foreign keys: it outlives what it names, and each would cost every create a check."""

    __tablename__ = "audit_event"
    __table_args__ = (
        one_of("outcome", AuditOutcome),
        Index("audit_event_by_project", "project_id", "created_at", "id"),
        Index("audit_event_by_time", "created_at", "id"),
        Index("audit_event_of_target", "target", "created_at", postgresql_where=text("target IS NOT NULL")),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID]
    token_id: Mapped[UUID]
    created_at: Mapped[CreatedAt]
    request_id: Mapped[str]
    mutation: Mapped[str]
    input_digest: Mapped[bytes]  # keyed, see server/db/seals.py
    target: Mapped[str | None]  # id of the object that the request names or made, as in the API
    outcome: Mapped[str]
    error_code: Mapped[str | None]
