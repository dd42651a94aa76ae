"""What the queue tells Prometheus, per kind."""

from prometheus_client import Counter, Gauge, Histogram

from server.queue.reads import JobStats

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

FINISHED = Counter("pilotlight_jobs_finished_total", "Jobs done.", ["kind"])
FAILED = Counter("pilotlight_jobs_failed_total", "Jobs given up.", ["kind"])
CANCELLED = Counter("pilotlight_jobs_cancelled_total", "Jobs cancelled.", ["kind"])
ATTEMPTS_FAILED = Counter("pilotlight_job_attempts_failed_total", "Runs that failed and will be tried again.", ["kind"])
PUT_OFF = Counter("pilotlight_jobs_put_off_total", "Runs that asked to be run again later.", ["kind"])
LATE = Counter("pilotlight_job_late_writes_total", "Writes refused because the claim had passed to somebody else.")
RESCUED = Counter("pilotlight_jobs_rescued_total", "Jobs taken back from workers that died.")
LEASES_LOST = Counter("pilotlight_worker_leases_lost_total", "Times this process could not renew its lease.")
RUNNING_HERE = Gauge("pilotlight_jobs_running_here", "Jobs running in this process.", ["kind"])
PICKUP = Histogram("pilotlight_job_pickup_seconds", "From when a job may run to its claim.", ["kind"], buckets=_SECONDS)
RUN_TIME = Histogram("pilotlight_job_run_seconds", "How long a handler ran.", ["kind"], buckets=_SECONDS)

WAITING = Gauge("pilotlight_jobs_waiting", "Jobs that may run now and do not yet.", ["kind"])
RUNNING = Gauge("pilotlight_jobs_running", "Jobs running in all processes.", ["kind"])
KEPT_FAILED = Gauge("pilotlight_jobs_kept_failed", "Failed jobs that can be retried.", ["kind"])
OLDEST_WAITING = Gauge("pilotlight_jobs_oldest_waiting_seconds", "Age of the oldest job that may run now.", ["kind"])


class KindMetrics:
    """The children of one kind, looked up once: labels() takes longer than the counting itself."""

    __slots__ = ("attempts_failed", "cancelled", "failed", "finished", "pickup", "put_off", "run_time", "running")

    def __init__(self, kind: str) -> None:
        self.finished = FINISHED.labels(kind)
        self.failed = FAILED.labels(kind)
        self.cancelled = CANCELLED.labels(kind)
        self.attempts_failed = ATTEMPTS_FAILED.labels(kind)
        self.put_off = PUT_OFF.labels(kind)
        self.running = RUNNING_HERE.labels(kind)
        self.pickup = PICKUP.labels(kind)
        self.run_time = RUN_TIME.labels(kind)


def show(stats: JobStats) -> None:
    """Set the gauges that only the database knows; for whoever answers a scrape."""
    for gauge in (WAITING, RUNNING, KEPT_FAILED, OLDEST_WAITING):
        gauge.clear()  # a kind of which nothing is left would keep its last figure for ever
    for kind in stats.kinds:
        WAITING.labels(kind.kind).set(kind.waiting)
        RUNNING.labels(kind.kind).set(kind.running)
        KEPT_FAILED.labels(kind.kind).set(kind.failed)
        OLDEST_WAITING.labels(kind.kind).set(kind.oldest_waiting.total_seconds() if kind.oldest_waiting else 0)
