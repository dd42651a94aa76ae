"""What the queue tells Prometheus, per kind.

Counted in plain numbers and turned into samples only when somebody asks: the client library's own counters take longer
than everything else that is done for a short job.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import REGISTRY, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from server.queue.reads import JobStats

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

LATE = Counter("pilotlight_job_late_writes_total", "Writes refused because the claim had passed to somebody else.")
RESCUED = Counter("pilotlight_jobs_rescued_total", "Jobs taken back from workers that died.")
LEASES_LOST = Counter("pilotlight_worker_leases_lost_total", "Times this process could not renew its lease.")

WAITING = Gauge("pilotlight_jobs_waiting", "Jobs that may run now and do not yet.", ["kind"])
RUNNING = Gauge("pilotlight_jobs_running", "Jobs running in all processes.", ["kind"])
KEPT_FAILED = Gauge("pilotlight_jobs_kept_failed", "Failed jobs that can be retried.", ["kind"])
OLDEST_WAITING = Gauge("pilotlight_jobs_oldest_waiting_seconds", "Age of the oldest job that may run now.", ["kind"])


def show(stats: JobStats) -> None:
    """Set the gauges that only the database knows; for whoever answers a scrape."""
    show_nothing()  # a kind of which nothing is left would keep its last figure for ever
    for kind in stats.kinds:
        WAITING.labels(kind.kind).set(kind.waiting)
        RUNNING.labels(kind.kind).set(kind.running)
        KEPT_FAILED.labels(kind.kind).set(kind.failed)
        OLDEST_WAITING.labels(kind.kind).set(kind.oldest_waiting.total_seconds() if kind.oldest_waiting else 0)


def show_nothing() -> None:
    """Forget those figures: nobody knows them now."""
    for gauge in (WAITING, RUNNING, KEPT_FAILED, OLDEST_WAITING):
        gauge.clear()


class Times:
    """A histogram of seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound with how many were not longer, as Prometheus wants it."""
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], self.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


class KindMetrics:
    """What this process has seen of one kind."""

    __slots__ = ("attempts_failed", "cancelled", "failed", "finished", "pickup", "put_off", "run_time", "running")

    def __init__(self) -> None:
        self.finished = 0
        self.failed = 0
        self.cancelled = 0
        self.attempts_failed = 0
        self.put_off = 0
        self.running = 0
        self.pickup = Times()
        self.run_time = Times()


_kinds: dict[str, KindMetrics] = {}


def of(kind: str) -> KindMetrics:
    """The counts of a kind, the same for everybody in this process."""
    return _kinds.setdefault(kind, KindMetrics())


class _Kinds(Collector):
    def collect(self) -> Iterator[Metric]:
        finished = CounterMetricFamily("pilotlight_jobs_finished", "Jobs done.", labels=["kind"])
        failed = CounterMetricFamily("pilotlight_jobs_failed", "Jobs given up.", labels=["kind"])
        cancelled = CounterMetricFamily("pilotlight_jobs_cancelled", "Jobs cancelled.", labels=["kind"])
        again = CounterMetricFamily(
            "pilotlight_job_attempts_failed", "Runs that failed and will be tried again.", labels=["kind"]
        )
        put_off = CounterMetricFamily(
            "pilotlight_jobs_put_off", "Runs that asked to be run again later.", labels=["kind"]
        )
        running = GaugeMetricFamily("pilotlight_jobs_running_here", "Jobs running in this process.", labels=["kind"])
        pickup = HistogramMetricFamily(
            "pilotlight_job_pickup_seconds", "From when a job may run to its claim.", labels=["kind"]
        )
        run_time = HistogramMetricFamily("pilotlight_job_run_seconds", "How long a handler ran.", labels=["kind"])
        for kind, counts in list(_kinds.items()):
            finished.add_metric([kind], counts.finished)
            failed.add_metric([kind], counts.failed)
            cancelled.add_metric([kind], counts.cancelled)
            again.add_metric([kind], counts.attempts_failed)
            put_off.add_metric([kind], counts.put_off)
            running.add_metric([kind], counts.running)
            pickup.add_metric([kind], counts.pickup.buckets(), counts.pickup.total)
            run_time.add_metric([kind], counts.run_time.buckets(), counts.run_time.total)
        yield from (finished, failed, cancelled, again, put_off, running, pickup, run_time)


REGISTRY.register(_Kinds())
