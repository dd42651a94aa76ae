"""Values that GraphQL has no word for."""

import math
from datetime import datetime, timedelta
from typing import Any, NewType

import strawberry
from graphql import GraphQLError

BIGGEST = 2**53 - 1  # beyond this, JavaScript's numbers lose the last digits
LONGEST = 10 * 365 * 86_400.0  # seconds; whoever writes more has mistaken the unit

BigInt = NewType("BigInt", int)


def _read_big_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > BIGGEST:
        raise GraphQLError(f"BigInt must be a whole number between -{BIGGEST} and {BIGGEST}.")
    return value


def _read_duration(value: Any) -> timedelta:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= LONGEST:
        raise GraphQLError(f"Duration must be a number of seconds between 0 and {LONGEST:.0f}.")
    return timedelta(seconds=value)


def _read_date_time(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in value.upper():
        raise GraphQLError("DateTime must be a time with its zone, such as 2026-11-16T08:30:00Z.")
    return moment


BIG_INT = strawberry.scalar(
    name="BigInt",
    description="A whole number of up to 53 bits, as a JSON number.",
    serialize=int,
    parse_value=_read_big_int,
)

DURATION = strawberry.scalar(
    name="Duration",
    description="A length of time: seconds, as a JSON number, with a fraction where there is one. 0.25 is a quarter of "
    "a second, 90 is a minute and a half. Never negative.",
    serialize=timedelta.total_seconds,
    parse_value=_read_duration,
)

DATE_TIME = strawberry.scalar(
    name="DateTime",
    description="A moment, as RFC 3339 writes it: 2026-11-16T08:30:00.250000+00:00. Answers are in UTC; a given one "
    "may be in any zone, but has to name it.",
    specified_by_url="https://www.rfc-editor.org/rfc/rfc3339",
    serialize=datetime.isoformat,
    parse_value=_read_date_time,
)

SCALARS: dict[object, Any] = {BigInt: BIG_INT, timedelta: DURATION, datetime: DATE_TIME}
