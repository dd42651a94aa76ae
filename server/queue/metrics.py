"""Prometheus metrics of the queue, per kind.

Counted in plain numbers and turned into samples at a scrape: the client library's own counters take longer than
everything else that is done for a short job.
"""

from collections.abc import Iterator

from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from server.observe.counters import Buckets, Counter
from server.queue.queries import JobStats

LATE_WRITES = Counter("pilotlight_job_late_writes", "Writes refused because the claim had passed to another worker.")
RESCUED = Counter("pilotlight_jobs_rescued", "Jobs taken back from workers that died.")
LEASES_LOST = Counter("pilotlight_worker_leases_lost", "Times this process could not renew its lease.")

WAITING = Gauge("pilotlight_jobs_waiting", "Jobs that may run now and do not yet.", ["kind"])
RUNNING = Gauge("pilotlight_jobs_running", "Jobs running in all processes.", ["kind"])
KEPT_FAILED = Gauge("pilotlight_jobs_kept_failed", "Failed jobs that can be retried.", ["kind"])
OLDEST_WAITING = Gauge("pilotlight_jobs_oldest_waiting_seconds", "Age of the oldest job that may run now.", ["kind"])


def set_gauges(stats: JobStats) -> None:
    """Set the gauges whose values come from the database; called at each scrape."""
    clear_gauges()  # a kind without jobs would keep its last value
    for kind in stats.kinds:
        WAITING.labels(kind.kind).set(kind.waiting)
        RUNNING.labels(kind.kind).set(kind.running)
        KEPT_FAILED.labels(kind.kind).set(kind.failed)
        OLDEST_WAITING.labels(kind.kind).set(kind.oldest_waiting.total_seconds() if kind.oldest_waiting else 0)


def clear_gauges() -> None:
    """Remove the values of those gauges: the database can't be read."""
    for gauge in (WAITING, RUNNING, KEPT_FAILED, OLDEST_WAITING):
        gauge.clear()


class KindMetrics:
    """The counts of one kind in this process."""

    __slots__ = ("attempts_failed", "cancelled", "failed", "finished", "pickup", "rescheduled", "run_time", "running")

    def __init__(self) -> None:
        self.finished = 0
        self.failed = 0
        self.cancelled = 0
        self.attempts_failed = 0
        self.rescheduled = 0
        self.running = 0
        self.pickup = Buckets()
        self.run_time = Buckets()


COUNTS = (
    ("finished", "pilotlight_jobs_finished", "Jobs done."),
    ("failed", "pilotlight_jobs_failed", "Jobs given up."),
    ("cancelled", "pilotlight_jobs_cancelled", "Jobs cancelled."),
    ("attempts_failed", "pilotlight_job_attempts_failed", "Runs that failed and will be tried again."),
    ("rescheduled", "pilotlight_jobs_put_off", "Runs that asked to be run again later."),
)
TIMES = (
    ("pickup", "pilotlight_job_pickup_seconds", "From when a job may run to its claim."),
    ("run_time", "pilotlight_job_run_seconds", "How long a handler ran."),
)


class JobMetrics(Collector):
    """The counts of all kinds. Registers itself, like every metric: there is one per process."""

    def __init__(self) -> None:
        self._kinds: dict[str, KindMetrics] = {}
        REGISTRY.register(self)

    def of(self, kind: str) -> KindMetrics:
        return self._kinds.setdefault(kind, KindMetrics())

    def collect(self) -> Iterator[Metric]:
        kinds = list(self._kinds.items())
        for attribute, name, help in COUNTS:
            family = CounterMetricFamily(name, help, labels=["kind"])
            for kind, counts in kinds:
                family.add_metric([kind], getattr(counts, attribute))
            yield family
        running = GaugeMetricFamily("pilotlight_jobs_running_here", "Jobs running in this process.", labels=["kind"])
        for kind, counts in kinds:
            running.add_metric([kind], counts.running)
        yield running
        for attribute, name, help in TIMES:
            family = HistogramMetricFamily(name, help, labels=["kind"])
            for kind, counts in kinds:
                times: Buckets = getattr(counts, attribute)
                family.add_metric([kind], times.buckets(), times.total)
            yield family


JOBS = JobMetrics()
