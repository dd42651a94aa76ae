"""Cursors and connections."""

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
from graphql import GraphQLError

MAX_PAGE = 100
BIGGEST = 2**53  # of numbers in a cursor
_LAYOUT = struct.Struct(">q16s")
_NUMBER = struct.Struct(">q")
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


def number_cursor(id: int) -> str:
    """The same for rows that are numbered and sorted by that."""
    return urlsafe_b64encode(_NUMBER.pack(id)).decode()


def read_number_cursor(cursor: str) -> int:
    try:
        (id,) = _NUMBER.unpack(urlsafe_b64decode(cursor.encode("ascii")))
        return id
    except (binascii.Error, struct.error, ValueError):
        raise GraphQLError("This cursor is not one of ours.", extensions={"code": "INVALID_CURSOR"}) from None


def order_cursor(order: str, value: str | int | datetime, id: UUID) -> str:
    """The same for pages in any order. It says which order it belongs to: in another one its place means nothing."""
    told = value.isoformat() if isinstance(value, datetime) else value
    return urlsafe_b64encode(orjson.dumps([order, told, id.hex])).decode()


def read_order_cursor(cursor: str, order: str, kind: type[str | int | datetime]) -> tuple[str | int | datetime, UUID]:
    try:
        found, told, raw = orjson.loads(urlsafe_b64decode(cursor.encode("ascii")))
        if found != order:
            raise ValueError
        return _value(told, kind), UUID(raw)
    except (binascii.Error, ValueError, TypeError, AttributeError):
        message = "This cursor is not one of ours, or belongs to another order."
        raise GraphQLError(message, extensions={"code": "INVALID_CURSOR"}) from None


def _value(told: object, kind: type[str | int | datetime]) -> str | int | datetime:
    if kind is int:
        if type(told) is not int or abs(told) > BIGGEST:
            raise ValueError
        return told
    if not isinstance(told, str) or "\x00" in told:
        raise ValueError
    return _moment(told) if kind is datetime else told


def _moment(told: str) -> datetime:
    moment = datetime.fromisoformat(told)
    if moment.tzinfo is None:
        raise ValueError
    return moment


def check_first(first: int) -> int:
    if not 1 <= first <= MAX_PAGE:
        raise GraphQLError(f"`first` must be 1 to {MAX_PAGE}.", extensions={"code": "INVALID_PAGE_SIZE"})
    return first
