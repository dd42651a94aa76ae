"""When the cron expressions of a schedule fire, in the schedule's time zone.

A time that daylight saving skips fires at the next valid minute; one that occurs twice fires once.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

FIELDS = 5  # minute, hour, day of month, month, day of week
# Times that occur twice are found again in the second hour; they are left out.
LOOKS_MAX = 4


def next_fire(expressions: Iterable[str], timezone: str, *, after: datetime) -> datetime | None:
    """The first time after `after` at which one of the expressions fires; None if none ever does."""
    fires = [_fire(each, timezone, after, is_backwards=False) for each in expressions]
    return min((each for each in fires if each is not None), default=None)


def last_fire(expressions: Iterable[str], timezone: str, *, until: datetime) -> datetime | None:
    """The last time up to `until` at which one of the expressions fired; None if none ever did."""
    fires = [_fire(each, timezone, until, is_backwards=True) for each in expressions]
    return max((each for each in fires if each is not None), default=None)


def is_time_zone(name: str) -> bool:
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):  # unknown, or not a name but a path
        return False
    return True


def is_expression(expression: str, timezone: str, *, after: datetime) -> bool:
    """Whether it can be read and fires at some time."""
    if len(expression.split()) != FIELDS or not expression.isascii():
        return False
    try:
        return _fire(expression, timezone, after, is_backwards=False) is not None
    except (CronSimError, ValueError, AssertionError):
        return False


def _fire(expression: str, timezone: str, moment: datetime, *, is_backwards: bool) -> datetime | None:
    fires = CronSim(expression, moment.astimezone(_zone(timezone)), reverse=is_backwards)
    for _ in range(LOOKS_MAX):
        try:
            found = next(fires).astimezone(UTC)
        except (StopIteration, OverflowError):
            return None
        if found < moment if is_backwards else found > moment:
            return found
    return None


@lru_cache(maxsize=100)
def _zone(name: str) -> ZoneInfo:
    if not name or name.startswith((".", "/")):
        raise ValueError(name)
    return ZoneInfo(name)
