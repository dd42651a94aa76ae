"""Counters and histograms for Prometheus, kept as plain numbers and converted to samples at each scrape.

The client library's own metrics take a lock and a look-up by labels each time, longer than much of what they would
count. These are updated on the event loop's thread only.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LONG_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)

# Labels are words of short lists. Beyond this many series the rest is counted as `other`, so a scrape stays small.
SERIES_MAX = 300
OTHER = "other"


class Buckets:
    """The buckets of one histogram series."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts per upper bound, as Prometheus expects them."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class Counter(Collector):
    """A counter with labels. It registers itself; names are unique in a process."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self._name, self._help, self._labels = name, help, labels
        self._counts: dict[tuple[str, ...], float] = {} if labels else {(): 0}
        REGISTRY.register(self)

    def add(self, *labels: str, by: float = 1) -> None:
        counts = self._counts
        if labels not in counts and len(counts) >= SERIES_MAX:
            labels = (OTHER,) * len(labels)
        counts[labels] = counts.get(labels, 0) + by

    def of(self, *labels: str) -> float:
        """The current count."""
        return self._counts.get(labels, 0)

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count)
        yield family


class Histogram(Collector):
    """A histogram of durations with labels."""

    def __init__(self, name: str, help: str, *labels: str, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._name, self._help, self._labels, self._bounds = name, help, labels, bounds
        self._times: dict[tuple[str, ...], Buckets] = {} if labels else {(): Buckets(bounds)}
        REGISTRY.register(self)

    def observe(self, seconds: float, *labels: str) -> None:
        times = self._times.get(labels)
        if times is None:
            if len(self._times) >= SERIES_MAX:
                labels = (OTHER,) * len(labels)
            times = self._times.setdefault(labels, Buckets(self._bounds))
        times.observe(seconds)

    def count(self, *labels: str) -> int:
        """The current count."""
        times = self._times.get(labels)
        return 0 if times is None else sum(times.counts)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, times in list(self._times.items()):
            family.add_metric(labels, times.buckets(), times.total)
        yield family
