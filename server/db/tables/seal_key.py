"""Table of the key that makes cursors and job ids opaque."""

from datetime import datetime

from sqlalchemy import CheckConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base


class SealKey(Base):
    """One row, written by the migration and never changed."""

    __tablename__ = "seal_key"
    __table_args__ = (CheckConstraint("is_the_only_row", name="has_one_row"),)

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    key: Mapped[bytes]
    # Until then, cursors of the release before are accepted, which showed their position; null: never.
    plain_cursors_until: Mapped[datetime | None]
