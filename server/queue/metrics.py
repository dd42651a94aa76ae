"""What the queue tells Prometheus, per kind.

Counted in plain numbers and turned into samples only when somebody asks: the client library's own counters take longer
than everything else that is done for a short job.
"""

from collections.abc import Iterator

from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from server.observe.counting import Counter, Times
from server.queue.reads import JobStats

LATE = Counter("pilotlight_job_late_writes", "Writes refused because the claim had passed to somebody else.")
RESCUED = Counter("pilotlight_jobs_rescued", "Jobs taken back from workers that died.")
LEASES_LOST = Counter("pilotlight_worker_leases_lost", "Times this process could not renew its lease.")

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
