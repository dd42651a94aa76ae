"""Who owns rows, and what a caller presents."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base, CreatedAt, Id, one_of
from server.words import Role


class Project(Base):
    """Owns instances and everything that hangs on them; rows of one are invisible to another."""

    __tablename__ = "project"
    __table_args__ = (CheckConstraint("name <> ''", name="has_a_name"),)

    id: Mapped[Id]
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]


class Token(Base):
    """A bearer token. Only its hash is here: whoever reads this table can't call the API with it."""

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
    last_used_at: Mapped[datetime | None]
    # None where it was done at the terminal.
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
    revoked_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
