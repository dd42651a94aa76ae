"""Counters and histograms for Prometheus, kept in plain numbers and turned into samples only when somebody asks.

The client library's own take longer than much of what they would count: a lock and a look-up by labels each time.
Everything here is counted on the event loop's thread.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LONG_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)

# Every label is a word out of a short list. Should one not be, the rest is counted together: a scrape stays small.
MOST_SERIES = 300
OTHER = "other"


class Times:
    """How long things took, by the upper bounds of a histogram."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound with how many were not longer, as Prometheus wants it."""
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


class Counter(Collector):
    """Counts things by their labels. Registers itself; there is one of each name in a process."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self._name, self._help, self._labels = name, help, labels
        self._counts: dict[tuple[str, ...], float] = {} if labels else {(): 0}
        REGISTRY.register(self)

    def add(self, *labels: str, by: float = 1) -> None:
        counts = self._counts
        if labels not in counts and len(counts) >= MOST_SERIES:
            labels = (OTHER,) * len(labels)
        counts[labels] = counts.get(labels, 0) + by

    def of(self, *labels: str) -> float:
        """How many so far."""
        return self._counts.get(labels, 0)

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count)
        yield family


class Histogram(Collector):
    """Times by their labels; like Counter otherwise."""

    def __init__(self, name: str, help: str, *labels: str, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._name, self._help, self._labels, self._bounds = name, help, labels, bounds
        self._times: dict[tuple[str, ...], Times] = {} if labels else {(): Times(bounds)}
        REGISTRY.register(self)

    def observe(self, seconds: float, *labels: str) -> None:
        times = self._times.get(labels)
        if times is None:
            if len(self._times) >= MOST_SERIES:
                labels = (OTHER,) * len(labels)
            times = self._times.setdefault(labels, Times(self._bounds))
        times.observe(seconds)

    def count(self, *labels: str) -> int:
        """How many so far."""
        times = self._times.get(labels)
        return 0 if times is None else sum(times.counts)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, times in list(self._times.items()):
            family.add_metric(labels, times.buckets(), times.total)
        yield family
