"""When a message that did not arrive is sent again, and when that is given up."""

import random
from datetime import timedelta

# Nearly a day in all: a receiver that was down over a night is told everything.
PAUSES = tuple(
    timedelta(seconds=seconds) for seconds in (5, 15, 60, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 28_800)
)
LONGEST = timedelta(days=1)
JITTER = 0.1


def next_pause(counted: int, *, age: timedelta, retry_after: timedelta | None = None) -> timedelta | None:
    """How long after that many attempts in vain; None when it is over.

    By age as well as by number: what stood behind a dead message for a day gets its one try, and not another day.
    """
    if counted > len(PAUSES) or age >= LONGEST:
        return None
    pause = PAUSES[counted - 1] * random.uniform(1 - JITTER, 1 + JITTER)
    return min(max(pause, retry_after or timedelta(0)), LONGEST)
