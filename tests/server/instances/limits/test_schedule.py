"""Cron expressions in time zones with daylight saving, and which are refused."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from server.instances.limits.schedule import is_expression, is_time_zone, last_fire, next_fire

BERLIN = "Europe/Berlin"


def berlin(*parts: int, fold: int = 0) -> datetime:
    # In UTC: Python takes times that occur twice for unequal to all others.
    return datetime(*parts, tzinfo=ZoneInfo(BERLIN), fold=fold).astimezone(UTC)  # type: ignore[misc,arg-type]


def test_expression_fires_at_the_local_time_in_summer_and_winter():
    assert next_fire(["0 18 * * *"], BERLIN, after=berlin(2026, 7, 1, 12)) == datetime(2026, 7, 1, 16, tzinfo=UTC)
    assert next_fire(["0 18 * * *"], BERLIN, after=berlin(2026, 12, 1, 12)) == datetime(2026, 12, 1, 17, tzinfo=UTC)


def test_skipped_time_fires_at_the_next_valid_minute():
    assert next_fire(["30 2 * * *"], BERLIN, after=berlin(2026, 3, 28, 12)) == berlin(2026, 3, 29, 3, 0)


def test_doubled_time_fires_once():
    first = next_fire(["30 2 * * *"], BERLIN, after=berlin(2026, 10, 24, 12))
    assert first == berlin(2026, 10, 25, 2, 30, fold=0)
    assert next_fire(["30 2 * * *"], BERLIN, after=first) == berlin(2026, 10, 26, 2, 30)
    # Between the two, in the second hour.
    assert next_fire(["30 2 * * *"], BERLIN, after=berlin(2026, 10, 25, 2, 10, fold=1)) == berlin(2026, 10, 26, 2, 30)


def test_earliest_and_latest_of_several_expressions():
    weekdays = ["0 8 * * 1-5", "0 12 * * 6"]
    assert next_fire(weekdays, "UTC", after=datetime(2026, 11, 20, 9, tzinfo=UTC)) == datetime(
        2026, 11, 21, 12, tzinfo=UTC
    )
    assert last_fire(weekdays, "UTC", until=datetime(2026, 11, 22, 9, tzinfo=UTC)) == datetime(
        2026, 11, 21, 12, tzinfo=UTC
    )
    assert next_fire([], "UTC", after=datetime(2026, 11, 20, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    "expression", ["0 0 30 2 *", "0 0 0 0 0", "* * * *", "1 2 3 4 5 6", "a b c d e", "0 0 31 4 *", "0 0 29 2 1#6", ""]
)
def test_expression_that_never_fires_is_none(expression: str):
    assert not is_expression(expression, "UTC", after=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(("name", "is_known"), [("UTC", True), (BERLIN, True), ("Mars/One", False), ("../x", False)])
def test_time_zones_are_known_by_name(name: str, is_known: bool):
    assert is_time_zone(name) is is_known
