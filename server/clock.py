"""The current time, by the database's clock, and new ids; how ids and waits are written."""

import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from uuid import UUID

import uuid_utils.compat

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JUMP_MIN = 2.0  # seconds; less is drift, or the time that the reading took
JUMP_TIMEOUT = 60.0  # seconds


class Clock:
    """The database's clock, continued by this machine's monotonic clock; until it is first read, our own clock.

    Processes with wrong clocks agree on the time, and a clock that is set does not change how long something took: a
    jump of the database's clock is followed only when it has lasted for JUMP_TIMEOUT.
    """

    def __init__(self) -> None:
        self._offset: float | None = None  # seconds from our monotonic clock to the database's clock
        self._jump: tuple[float, float] | None = None  # another offset, and since when it is seen

    def now(self) -> datetime:
        if self._offset is None:
            return datetime.now(UTC)
        return EPOCH + timedelta(seconds=time.monotonic() + self._offset)

    def follow(self, database_time: datetime, *, at: float) -> None:
        """Compare with a reading of the database's clock, taken when our monotonic clock showed `at`."""
        offset = (database_time - EPOCH).total_seconds() - at
        if self._offset is None or abs(offset - self._offset) <= JUMP_MIN:
            self._offset, self._jump = offset, None
        elif self._jump is None or abs(offset - self._jump[0]) > JUMP_MIN:
            self._jump = (offset, at)
        elif at - self._jump[1] >= JUMP_TIMEOUT:
            self._offset, self._jump = offset, None


# One per process, as the machine's own clock, which it stands for.
CLOCK = Clock()


def now() -> datetime:
    """The current time in UTC by the database's clock."""
    return CLOCK.now()


def new_id() -> UUID:
    """A UUIDv7: later ids sort later, which keeps indexes dense."""
    return uuid_utils.compat.uuid7()


def format_id(prefix: str, id: UUID) -> str:
    """An id as clients see it."""
    return f"{prefix}_{id.hex}"


def parse_retry_after(header: str | None, *, limit: timedelta) -> timedelta | None:
    """The wait of a Retry-After header, seconds or an HTTP date, between 0 and `limit`; None if it is neither."""
    if header is None:
        return None
    header = header.strip()
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", header, re.ASCII):
        wait = timedelta(seconds=float(header))
    else:
        try:
            moment = parsedate_to_datetime(header)
            wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now()
        except (ValueError, OverflowError, TypeError, IndexError):
            return None
    return min(max(wait, timedelta(0)), limit)
