"""The clock of a process: the database's, and steady when that one jumps."""

import time
from datetime import timedelta

from server.clock import EPOCH, JUMP_TIMEOUT, Clock

HOUR = timedelta(hours=1)


def clock_at(moment: timedelta, *, at: float) -> Clock:
    clock = Clock()
    clock.follow(EPOCH + moment, at=at)
    return clock


def test_clock_shows_the_databases_time_whatever_the_machine_shows():
    clock = clock_at(HOUR, at=time.monotonic())
    assert timedelta(0) <= clock.now() - (EPOCH + HOUR) < timedelta(minutes=5)


def test_jump_that_does_not_last_changes_nothing():
    start = time.monotonic()
    clock = clock_at(HOUR, at=start)
    for seconds in range(10):
        clock.follow(EPOCH + 2 * HOUR + timedelta(seconds=seconds), at=start + seconds)
    clock.follow(EPOCH + HOUR + timedelta(seconds=10), at=start + 10)

    assert clock.now() - (EPOCH + HOUR) < timedelta(minutes=5)


def test_jump_that_lasts_is_followed_after_a_minute():
    start = float(int(time.monotonic()))  # whole seconds: their difference is exactly a minute
    clock = clock_at(2 * HOUR, at=start)
    clock.follow(EPOCH + HOUR, at=start)
    before = clock.now()
    clock.follow(EPOCH + HOUR + timedelta(seconds=JUMP_TIMEOUT), at=start + JUMP_TIMEOUT)

    assert before - (EPOCH + 2 * HOUR) < timedelta(minutes=5)
    assert clock.now() - (EPOCH + HOUR) < timedelta(minutes=5)


def test_small_differences_are_followed_at_once():
    start = time.monotonic()
    clock = clock_at(HOUR, at=start)
    clock.follow(EPOCH + HOUR + timedelta(seconds=1.5), at=start)

    assert clock.now() >= EPOCH + HOUR + timedelta(seconds=1.5)
