"""Base class, metadata and common column types of all tables."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, MetaData, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

from server.clock import new_id

Id = Annotated[UUID, mapped_column(primary_key=True, default=new_id)]
CreatedAt = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=func.now())]


class Base(DeclarativeBase):
    """The registry of tables; a test compares the migrations with it."""

    metadata = MetaData(
        naming_convention={
            "pk": "%(table_name)s_pkey",
            "fk": "%(table_name)s_%(column_0_name)s_fkey",
            "ix": "%(table_name)s_%(column_0_name)s_idx",
            "uq": "%(table_name)s_%(column_0_name)s_key",
            "ck": "%(table_name)s_%(constraint_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        int: BigInteger(),
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB(),
        dict[str, str]: JSONB(),
        list[Any]: JSONB(),
        list[str]: JSONB(),
    }


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """A check that the column holds a value of the enum, spelled the same in Python, SQL and GraphQL."""
    words = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({words})", name=f"{column}_is_known")
