"""What to do when the provider can't be reached: the last known state stands, and the work waits."""

from datetime import datetime, timedelta

from server.clock import now
from server.errors import CircuitOpen, NovitaError, RateLimited
from server.jobs.handler import Tools, growing_pause
from server.queue.outcome import Again

LONGEST_PAUSE = timedelta(seconds=30)
SHORTEST_PAUSE = timedelta(milliseconds=500)


def later(error: NovitaError, *, since: datetime, tools: Tools) -> Again:
    """Come back later without spending an attempt; raises what will not pass, or has lasted too long."""
    waited = now() - since
    if not error.retryable or waited > tools.settings.provider_max_wait:
        raise error
    asked_for = error.retry_after if isinstance(error, RateLimited | CircuitOpen) else None
    pause = max(asked_for or timedelta(0), growing_pause(waited, longest=LONGEST_PAUSE), SHORTEST_PAUSE)
    return Again(after=pause)
