"""The utilisation of a machine, read from the provider for a caller; cached for a moment and never stored."""

from datetime import datetime, timedelta
from functools import partial

from server.auth.caller import Caller
from server.db.tables import InstanceLike
from server.instances.provider.live_reads import fetch_for_user
from server.instances.provider.reader import METRICS_TTL, ProviderReader
from server.novita.models import InstanceMetrics

# The provider's limits.
INTERVAL_MIN = timedelta(seconds=16)
POINTS_MAX = 1000


async def instance_metrics(
    reader: ProviderReader,
    instance: InstanceLike,
    *,
    since: datetime,
    until: datetime,
    interval: timedelta,
    by: Caller,
) -> InstanceMetrics | None:
    """None without a machine. Raises NovitaError, TooManyLiveReads."""
    fetch = partial(reader.metrics, since=_rounded(since), until=_rounded(until), interval=interval, by=by)
    return await fetch_for_user(instance, fetch, what="show metrics")


def range_problem(since: datetime, until: datetime, interval: timedelta) -> str | None:
    """Why the provider would refuse this range."""
    if interval < INTERVAL_MIN:
        return "The interval has at least 16 s."
    if since >= until:
        return "`since` must be before `until`."
    if (until - since) / interval > POINTS_MAX:
        return f"At most {POINTS_MAX} points: give a longer interval or a shorter range."
    return None


def _rounded(moment: datetime) -> datetime:
    """So that callers at about the same time share one answer."""
    seconds = METRICS_TTL.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, tz=moment.tzinfo)
