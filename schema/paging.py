"""Cursors and connections."""

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from uuid import UUID

from graphql import GraphQLError

MAX_PAGE = 100
_LAYOUT = struct.Struct(">q16s")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def cursor_of(created_at: datetime, id: UUID) -> str:
    """The place right after one row: the values of the sort order, exact to the microsecond."""
    return urlsafe_b64encode(_LAYOUT.pack((created_at - _EPOCH) // _MICROSECOND, id.bytes)).decode()


def read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        micros, raw = _LAYOUT.unpack(urlsafe_b64decode(cursor.encode("ascii")))
        return _EPOCH + timedelta(microseconds=micros), UUID(bytes=raw)
    except (binascii.Error, struct.error, ValueError, OverflowError):
        raise GraphQLError("This cursor is not one of ours.", extensions={"code": "INVALID_CURSOR"}) from None


def check_first(first: int) -> int:
    if not 1 <= first <= MAX_PAGE:
        raise GraphQLError(f"`first` must be 1 to {MAX_PAGE}.", extensions={"code": "INVALID_PAGE_SIZE"})
    return first
