"""Circuit breaker: stops calls to a provider that is down.

One circuit per route and one for the host. A failed connection counts for the host, a timeout or a 5xx for the route:
some routes fail for weeks while all others work (image prewarming returned 500 to every account in December 2025), and
one of them must not block the rest. A response below 500 counts as success, so that many requests for unknown ids open
no circuit; except that a refusal of our key (401) or account (402, 403) suspends calls at once. A 401 suspends all
routes, the others only the route they were given for: an account that may not create can still delete.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import TracebackType

import structlog

from server.errors import CircuitOpen, NovitaError, PaymentRequired, Suspended
from server.novita.transport.retry import TransportClock
from server.observe import metrics

HOST = "host"
KEY = "key"

# Seconds; for callers that arrive while the probe runs: its result is expected soon.
PROBE_RETRY_AFTER = 1.0

log = structlog.get_logger()


class BreakerState(StrEnum):
    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """The worst state of any circuit, and by name the circuits that are not closed ("host" and "key" are for all).

    `refusals`: why the provider refuses our key or account, by the circuit that is open for it.
    """

    state: BreakerState
    retry_after: timedelta | None
    circuits: dict[str, BreakerState]
    refusals: dict[str, str]


class CircuitBreaker:
    """All circuits. `threshold` failures in a row open one (0: never); after `recovery` a single call probes."""

    def __init__(self, *, threshold: int, recovery: timedelta, clock: TransportClock) -> None:
        self._threshold = threshold
        self._recovery = recovery.total_seconds()
        self._clock = clock
        self._host = self._new_circuit(HOST)
        self._key = self._new_circuit(KEY)
        self._routes: dict[str, Circuit] = {}

    @property
    def state(self) -> BreakerState:
        return self.snapshot().state

    @property
    def retry_after(self) -> timedelta | None:
        """Time until the last open circuit allows a probe; None when all are closed."""
        return self.snapshot().retry_after

    def snapshot(self) -> BreakerSnapshot:
        circuits = (self._host, self._key, *self._routes.values())
        not_closed = [each for each in circuits if each.state is not BreakerState.CLOSED]
        if not not_closed:
            return BreakerSnapshot(BreakerState.CLOSED, None, {}, {})
        is_open = any(each.state is BreakerState.OPEN for each in not_closed)
        return BreakerSnapshot(
            state=BreakerState.OPEN if is_open else BreakerState.HALF_OPEN,
            retry_after=timedelta(seconds=max(each.seconds_left() for each in not_closed)),
            circuits={each.name: each.state for each in not_closed},
            refusals={each.name: each.refusal for each in not_closed if each.refusal is not None},
        )

    def check(self, route: str) -> None:
        """Raise CircuitOpen if a call of this route would be refused now; does not use up the probe."""
        self._host.check()
        self._key.check()
        self._circuit(route).check()

    def enter(self, route: str) -> "Permit":
        """Permission for one call; raises CircuitOpen. Use the permit as a context manager."""
        self.check(route)  # first, or a refusal by one circuit would waste the probe of another
        return Permit(self._host, self._key, self._circuit(route))

    def _circuit(self, route: str) -> "Circuit":
        circuit = self._routes.get(route)
        if circuit is None:
            circuit = self._routes[route] = self._new_circuit(route)
        return circuit

    def _new_circuit(self, name: str) -> "Circuit":
        return Circuit(name, threshold=self._threshold, recovery=self._recovery, clock=self._clock)


class Permit:
    """Permission for one call. Leaving the block without a result, as a cancelled call does, frees the probe."""

    __slots__ = ("_host", "_host_period", "_is_over", "_key", "_key_period", "_route", "_route_period")

    def __init__(self, host: "Circuit", key: "Circuit", route: "Circuit") -> None:
        self._host, self._key, self._route = host, key, route
        self._host_period = host.enter()
        self._key_period = key.enter()
        self._route_period = route.enter()
        self._is_over = False

    def succeeded(self) -> None:
        """A response below 500: host, key and route work."""
        self._is_over = True
        self._host.record_success(self._host_period)
        self._key.record_success(self._key_period)
        self._route.record_success(self._route_period)

    def failed(self) -> None:
        """Connected, but no usable response: the host works, the route failed, nothing is known about the key."""
        self._is_over = True
        self._host.record_success(self._host_period)
        self._key.release(self._key_period)
        self._route.record_failure(self._route_period)

    def not_connected(self) -> None:
        """No connection: the host failed, nothing is known about the others."""
        self._is_over = True
        self._host.record_failure(self._host_period)
        self._key.release(self._key_period)
        self._route.release(self._route_period)

    def refused(self, error: NovitaError) -> None:
        """The provider refused our key, or our account for this route."""
        self._is_over = True
        self._host.record_success(self._host_period)
        if isinstance(error, PaymentRequired) or error.status == 403:
            self._key.record_success(self._key_period)
            self._route.suspend(self._route_period, error.message)
        else:
            self._key.suspend(self._key_period, error.message)
            self._route.release(self._route_period)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over:
            self._host.release(self._host_period)
            self._key.release(self._key_period)
            self._route.release(self._route_period)


class Circuit:
    """The circuit of the host, of our key or of one route. A period lasts from one opening or closing to the next. A
    result counts only in the period in which its call began: a late one neither closes nor reopens the circuit."""

    def __init__(self, name: str, *, threshold: int, recovery: float, clock: TransportClock) -> None:
        self.name = name
        self._threshold = threshold
        self._recovery = recovery
        self._clock = clock
        self._failures = 0
        self._period: int = 0
        self._opened_at: float | None = None
        self._is_probing = False
        self.refusal: str | None = None  # of our key or account, if that is why it is open

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._clock.now() < self._opened_at + self._recovery else BreakerState.HALF_OPEN

    def seconds_left(self) -> float:
        """Time until the next call is allowed."""
        if self._opened_at is None:
            return 0.0
        left = max(0.0, self._opened_at + self._recovery - self._clock.now())
        return max(left, PROBE_RETRY_AFTER) if self._is_probing else left

    def check(self) -> None:
        if self._opened_at is None:
            return
        if self._is_probing or self.state is BreakerState.OPEN:
            retry_after = timedelta(seconds=self.seconds_left())
            if self.refusal is not None:
                raise Suspended(f"calls are suspended: {self.refusal}", retry_after=retry_after)
            raise CircuitOpen(
                f"circuit open: {self.name} failed {self._failures} times in a row", retry_after=retry_after
            )

    def enter(self) -> int:
        self.check()
        if self._opened_at is not None:
            self._is_probing = True
        return self._period

    def record_success(self, period: int) -> None:
        if period != self._period:
            return
        self._failures = 0
        if self._opened_at is not None:
            self._opened_at, self._is_probing, self.refusal = None, False, None
            self._period += 1
            metrics.BREAKER_MOVES.add(BreakerState.CLOSED.value)
            log.warning("novita breaker closed", circuit=self.name)

    def record_failure(self, period: int) -> None:
        if period != self._period or self._threshold == 0:
            return
        self._failures += 1
        if self._opened_at is None and self._failures < self._threshold:
            return
        self._open(None)
        log.warning("novita breaker opened", circuit=self.name, failures=self._failures, seconds=self._recovery)

    def suspend(self, period: int, refusal: str) -> None:
        """Open at once: the next call would be refused for the same reason."""
        if period != self._period or self._threshold == 0:
            return
        self._open(refusal)
        log.error("novita calls suspended", circuit=self.name, error=refusal, seconds=self._recovery)

    def _open(self, refusal: str | None) -> None:
        self._opened_at, self._is_probing, self.refusal = self._clock.now(), False, refusal
        self._period += 1
        metrics.BREAKER_MOVES.add(BreakerState.OPEN.value)

    def release(self, period: int) -> None:
        if period == self._period:
            self._is_probing = False
