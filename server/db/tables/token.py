"""Tables of projects and tokens."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id, one_of
from server.enums import Role


class Project(Base):
    """Owns instances and their rows; other projects can't see them."""

    __tablename__ = "project"
    __table_args__ = (CheckConstraint("name <> ''", name="has_a_name"),)

    id: Mapped[Id]
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]


class Token(Base):
    """A bearer token. Only its hash is stored, so reading this table does not give access to the API."""

    __tablename__ = "token"
    __table_args__ = (
        one_of("role", Role),
        Index("token_by_project", "project_id", "created_at"),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"))
    name: Mapped[str]
    role: Mapped[str]
    hash: Mapped[bytes] = mapped_column(unique=True)
    hint: Mapped[str]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    # A development token, which is in a file and on a page: refused by a server that others can reach.
    is_loopback_only: Mapped[bool] = mapped_column(server_default=text("false"))
    # A login of a person, whose secret is accepted from a cookie only.
    is_session: Mapped[bool] = mapped_column(server_default=text("false"))
    last_used_at: Mapped[datetime | None]
    # Of server/auth/token_limits.py; null: none. Its budget and quota are rows of their own.
    limits: Mapped[dict[str, Any] | None]
    # None if it was done on the command line.
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
    revoked_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
