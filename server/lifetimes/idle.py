"""Whether the metrics of a window show that an instance is idle. What is missing counts as busy."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from server.instances.limits.spec import Idle
from server.novita.models import InstanceMetrics, Sample

INTERVAL = timedelta(seconds=60)  # between samples
COVERAGE_MIN = 0.8  # of the samples of each GPU


@dataclass(frozen=True, slots=True)
class Verdict:
    """`busy_at` is the last busy sample; without one, and not idle, too few samples are there to tell."""

    is_idle: bool = False
    busy_at: datetime | None = None
    idle_since: datetime | None = None


UNKNOWN = Verdict()


def judge(metrics: InstanceMetrics, limit: Idle, *, gpu_count: int, since: datetime, until: datetime) -> Verdict:
    """Idle: every GPU is below the limit in every sample of the window, and at least 80 % of the samples exist."""
    series = [[each for each in samples if since <= each.at <= until] for samples in metrics.gpu.by_gpu.values()]
    busy = [sample.at for samples in series for sample in samples if sample.percent >= limit.gpu_below_percent]
    if busy:
        busy_at = max(busy)
        return Verdict(busy_at=busy_at, idle_since=busy_at if until - busy_at > 2 * INTERVAL else None)
    expected = (until - since) / INTERVAL
    is_covered = len(series) >= gpu_count and all(_count(samples) >= COVERAGE_MIN * expected for samples in series)
    return Verdict(is_idle=True, idle_since=since) if is_covered else UNKNOWN


def _count(samples: Sequence[Sample]) -> int:
    """Samples in different minutes: a provider that sends more in one minute does not make up for a gap."""
    return len({int(each.at.timestamp() // INTERVAL.total_seconds()) for each in samples})
