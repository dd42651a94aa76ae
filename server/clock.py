"""The time and new ids, in one place so that tests can hold them still."""

from datetime import UTC, datetime
from uuid import UUID

import uuid_utils.compat


def now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)


def new_id() -> UUID:
    """A UUIDv7: unique anywhere, and rows made later sort later, which keeps indexes dense."""
    return uuid_utils.compat.uuid7()
