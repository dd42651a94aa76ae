"""What a process has at this moment, for a scrape: connections, sockets, caches, its part in the log.

Every family is there in every process; one without a sample says that this process has no such thing.
"""

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from schema.live.hub import Hub
from server.novita.breaker import BreakerState
from server.novita.priority import Priority
from server.runtime import Runtime


def of_process(runtime: Runtime, hub: Hub | None) -> Iterator[Metric]:
    versions = {"version": importlib.metadata.version("pilotlight"), "python": platform.python_version()}
    yield _by("pilotlight_build_info", "What runs here; always 1.", ",".join(versions), {tuple(versions.values()): 1})
    yield _one("pilotlight_draining", "Whether it was told to stop.", runtime.is_draining)
    yield from _provider(runtime)
    yield from _caches(runtime)
    yield from _log(runtime)
    yield from _pools(runtime)
    yield from _watchers(hub)
    working = runtime.workers_working if runtime.has_workers else None
    yield _one("pilotlight_workers_working", "Workers of this process that hold a lease.", working)


def _provider(runtime: Runtime) -> Iterator[Metric]:
    novita = runtime.novita.snapshot()
    states = {(state.value,): float(novita.breaker.state is state) for state in BreakerState}
    yield _by("pilotlight_provider_breaker", "1 for the state of the worst circuit.", "state", states)
    yield _one("pilotlight_provider_circuits_open", "Circuits that are not closed.", len(novita.breaker.circuits))
    limiter = novita.limiter
    waiting = {(Priority.USER.name,): limiter.waiting_users, (Priority.POLL.name,): limiter.waiting_polls}
    yield _by("pilotlight_provider_waiting", "Calls that wait for leave to be made.", "priority", waiting)
    left = limiter.available if limiter.calls_per_minute else None
    yield _one("pilotlight_provider_calls_available", "Calls that could be made at once.", left)


def _caches(runtime: Runtime) -> Iterator[Metric]:
    hits = CounterMetricFamily("pilotlight_cache_hits", "Look-ups that found something.", labels=["cache"])
    misses = CounterMetricFamily("pilotlight_cache_misses", "Look-ups that had to load.", labels=["cache"])
    evictions = CounterMetricFamily("pilotlight_cache_evictions", "Values dropped for want of room.", labels=["cache"])
    size = GaugeMetricFamily("pilotlight_cache_size", "Values held in this process.", labels=["cache"])
    for cache in runtime.caches.counts():
        hits.add_metric([cache.name], cache.hits)
        misses.add_metric([cache.name], cache.misses)
        evictions.add_metric([cache.name], cache.evictions)
        size.add_metric([cache.name], cache.size)
    yield from (hits, misses, evictions, size)
    yield _one("pilotlight_redis_away", "Whether the last look-up in Redis failed.", runtime.caches.is_redis_away)


def _log(runtime: Runtime) -> Iterator[Metric]:
    yield _one("pilotlight_sequencer_leader", "Whether this process numbers events.", runtime.sequencer.is_leader)
    yield _one("pilotlight_signals_hearing", "Whether wake-ups are heard.", runtime.signals.is_hearing)
    following = runtime.tail.is_following if runtime.follows_events else None
    yield _one("pilotlight_tail_following", "Whether the log is being followed.", following)
    position = runtime.tail.ring.head if following else None
    yield _one("pilotlight_tail_position", "The last position handed to watchers.", position)


def _pools(runtime: Runtime) -> Iterator[Metric]:
    pools = runtime.database.pools()
    yield _by("pilotlight_database_pool_size", "Connections at most.", "pool", {(p.name,): p.size for p in pools})
    yield _by("pilotlight_database_pool_in_use", "Connections in use.", "pool", {(p.name,): p.in_use for p in pools})
    yield _by("pilotlight_database_pool_waiting", "Who waits for one.", "pool", {(p.name,): p.waiting for p in pools})


def _watchers(hub: Hub | None) -> Iterator[Metric]:
    connections = None if hub is None else len(hub.census.connections)
    yield _one("pilotlight_sockets_open", "WebSockets and streams.", connections)
    operations = None if hub is None else hub.census.operations
    yield _one("pilotlight_socket_operations_open", "Operations open on them.", operations)
    yield _one("pilotlight_subscriptions", "Subscriptions being served.", None if hub is None else hub.cohorts.members)
    yield _one("pilotlight_cohorts", "Executions that serve them.", None if hub is None else len(hub.cohorts))


def _one(name: str, help: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(name, help)
    if value is not None:
        family.add_metric([], float(value))
    return family


def _by(name: str, help: str, labels: str, values: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels.split(","))
    for each, value in values.items():
        family.add_metric(each, float(value))
    return family
