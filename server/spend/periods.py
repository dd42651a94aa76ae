"""The periods of budgets: days, weeks that begin on Monday, and months of a time zone."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from server.enums import BudgetPeriod

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)  # before any entry


@dataclass(frozen=True, slots=True)
class Period:
    """`end` is None for one that never ends."""

    begin: datetime
    end: datetime | None


def period_at(period: str, timezone: str, moment: datetime) -> Period:
    """The period that a time lies in; both of its ends are midnights of the time zone."""
    if period == BudgetPeriod.TOTAL:
        return Period(BEGINNING, None)
    zone = ZoneInfo(timezone)
    day = moment.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if period == BudgetPeriod.WEEK:
        begin = day - timedelta(days=day.weekday())
        end = begin + timedelta(days=7)
    elif period == BudgetPeriod.MONTH:
        begin = day.replace(day=1)
        end = (begin + timedelta(days=32)).replace(day=1)
    else:
        begin, end = day, day + timedelta(days=1)
    # In the zone's own time: a day with a change of the clocks has 23 or 25 hours.
    return Period(begin.replace(tzinfo=zone).astimezone(UTC), end.replace(tzinfo=zone).astimezone(UTC))
