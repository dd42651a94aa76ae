"""Custom scalars: BigInt, Duration, DateTime."""

import math
from datetime import datetime, timedelta
from typing import Any, NewType

import strawberry
from graphql import GraphQLError

MAX_SAFE_INTEGER = 2**53 - 1  # above this, JavaScript's numbers lose digits
MAX_DURATION = 10 * 365 * 86_400.0  # seconds; a larger value is most likely in the wrong unit

BigInt = NewType("BigInt", int)


def _parse_big_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_SAFE_INTEGER:
        raise GraphQLError(f"BigInt must be an integer between -{MAX_SAFE_INTEGER} and {MAX_SAFE_INTEGER}.")
    return value


def _parse_duration(value: Any) -> timedelta:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= MAX_DURATION:
        raise GraphQLError(f"Duration must be a number of seconds between 0 and {MAX_DURATION:.0f}.")
    return timedelta(seconds=value)


def _parse_date_time(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in value.upper():
        raise GraphQLError("DateTime must be a time with a time zone, such as 2026-11-16T08:30:00Z.")
    return moment


BIG_INT = strawberry.scalar(
    name="BigInt",
    description="An integer of up to 53 bits, as a JSON number.",
    specified_by_url="https://www.rfc-editor.org/rfc/rfc7493#section-2.2",
    serialize=int,
    parse_value=_parse_big_int,
)

DURATION = strawberry.scalar(
    name="Duration",
    description="A duration in seconds, as a JSON number. 0.25 is 250 ms, 90 is one and a half minutes. Never "
    "negative.",
    specified_by_url="https://www.rfc-editor.org/rfc/rfc8259#section-6",
    serialize=timedelta.total_seconds,
    parse_value=_parse_duration,
)

DATE_TIME = strawberry.scalar(
    name="DateTime",
    description="A time in RFC 3339 format: 2026-11-16T08:30:00.250000+00:00. Results are in UTC; inputs may use any "
    "time zone, but must name it.",
    specified_by_url="https://www.rfc-editor.org/rfc/rfc3339",
    serialize=datetime.isoformat,
    parse_value=_parse_date_time,
)

SCALARS: dict[object, Any] = {BigInt: BIG_INT, timedelta: DURATION, datetime: DATE_TIME}
