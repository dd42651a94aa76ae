"""Not calling a provider that is down.

One circuit per route, and one for the host. A failure to connect is the host's; a timeout or a 5xx is the route's,
because some routes fail for weeks while all others work (fetching images ahead answered 500 to everybody in December
2025), and one of those must not take the rest away. Every answer below 500 is a sign of life: a flood of unknown ids
opens nothing.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import TracebackType

import structlog

from server.errors import CircuitOpen
from server.novita.ticks import Ticks
from server.observe import metrics

HOST = "host"

# What a caller is told who comes while the one probe is under way: its answer is about to decide.
PROBE_UNDER_WAY = 1.0

log = structlog.get_logger()


class BreakerState(StrEnum):
    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """The worst state of any circuit, and those that are not closed by name ("host" is the one of the host)."""

    state: BreakerState
    retry_after: timedelta | None
    circuits: dict[str, BreakerState]


class Breaker:
    """All circuits. `threshold` failures in a row open one (0: none ever); after `recovery` a single call probes."""

    def __init__(self, *, threshold: int, recovery: timedelta, ticks: Ticks) -> None:
        self._threshold = threshold
        self._recovery = recovery.total_seconds()
        self._ticks = ticks
        self._host = self._new_circuit(HOST)
        self._routes: dict[str, Circuit] = {}

    @property
    def state(self) -> BreakerState:
        return self.snapshot().state

    @property
    def retry_after(self) -> timedelta | None:
        """How long until the last open circuit lets a probe through; None when all are closed."""
        return self.snapshot().retry_after

    def snapshot(self) -> BreakerSnapshot:
        unwell = [each for each in (self._host, *self._routes.values()) if each.state is not BreakerState.CLOSED]
        if not unwell:
            return BreakerSnapshot(BreakerState.CLOSED, None, {})
        is_open = any(each.state is BreakerState.OPEN for each in unwell)
        return BreakerSnapshot(
            state=BreakerState.OPEN if is_open else BreakerState.HALF_OPEN,
            retry_after=timedelta(seconds=max(each.seconds_left() for each in unwell)),
            circuits={each.name: each.state for each in unwell},
        )

    def check(self, route: str) -> None:
        """Raise CircuitOpen if a call of this route would be refused now; takes no probe."""
        self._host.check()
        self._circuit(route).check()

    def enter(self, route: str) -> "Permit":
        """Leave to make one call; raises CircuitOpen. The permit has to be used as a context manager."""
        circuit = self._circuit(route)
        circuit.check()  # before the host's probe is taken, which would be taken for nothing
        return Permit(self._host, circuit)

    def _circuit(self, route: str) -> "Circuit":
        circuit = self._routes.get(route)
        if circuit is None:
            circuit = self._routes[route] = self._new_circuit(route)
        return circuit

    def _new_circuit(self, name: str) -> "Circuit":
        return Circuit(name, threshold=self._threshold, recovery=self._recovery, ticks=self._ticks)


class Permit:
    """One call's leave. Leaving the block without a verdict, as a cancelled call does, gives a probe back."""

    __slots__ = ("_host", "_host_turn", "_is_over", "_route", "_route_turn")

    def __init__(self, host: "Circuit", route: "Circuit") -> None:
        self._host, self._route = host, route
        self._host_turn = host.enter()
        self._route_turn = route.enter()
        self._is_over = False

    def answered(self) -> None:
        """The provider is alive and so is the route."""
        self._is_over = True
        self._host.works(self._host_turn)
        self._route.works(self._route_turn)

    def failed(self) -> None:
        """Somebody was there, and did not serve us."""
        self._is_over = True
        self._host.works(self._host_turn)
        self._route.fails(self._route_turn)

    def not_connected(self) -> None:
        """Nobody was there, which tells nothing of the route."""
        self._is_over = True
        self._host.fails(self._host_turn)
        self._route.leave(self._route_turn)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over:
            self._host.leave(self._host_turn)
            self._route.leave(self._route_turn)


class Circuit:
    """One thing that can be down. A turn is the number of the period a call was let in: what it has to tell counts only
    while that period lasts, so an answer from before the opening neither closes nor reopens anything."""

    def __init__(self, name: str, *, threshold: int, recovery: float, ticks: Ticks) -> None:
        self.name = name
        self._threshold = threshold
        self._recovery = recovery
        self._ticks = ticks
        self._failures = 0
        self._turn: int = 0
        self._opened_at: float | None = None
        self._is_probing = False

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._ticks.now() < self._opened_at + self._recovery else BreakerState.HALF_OPEN

    def seconds_left(self) -> float:
        """How long until it is worth asking again."""
        if self._opened_at is None:
            return 0.0
        left = max(0.0, self._opened_at + self._recovery - self._ticks.now())
        return max(left, PROBE_UNDER_WAY) if self._is_probing else left

    def check(self) -> None:
        if self._opened_at is None:
            return
        if self._is_probing or self.state is BreakerState.OPEN:
            raise CircuitOpen(
                f"not calling Novita for now: {self.name} failed {self._failures} times in a row",
                retry_after=timedelta(seconds=self.seconds_left()),
            )

    def enter(self) -> int:
        self.check()
        if self._opened_at is not None:
            self._is_probing = True
        return self._turn

    def works(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._failures = 0
        if self._opened_at is not None:
            self._opened_at, self._is_probing = None, False
            self._turn += 1
            metrics.BREAKER_MOVES.add(BreakerState.CLOSED.value)
            log.warning("novita breaker closed", circuit=self.name)

    def fails(self, turn: int) -> None:
        if turn != self._turn or self._threshold == 0:
            return
        self._failures += 1
        if self._opened_at is None and self._failures < self._threshold:
            return
        self._opened_at, self._is_probing = self._ticks.now(), False
        self._turn += 1
        metrics.BREAKER_MOVES.add(BreakerState.OPEN.value)
        log.warning("novita breaker opened", circuit=self.name, failures=self._failures, seconds=self._recovery)

    def leave(self, turn: int) -> None:
        if turn == self._turn:
            self._is_probing = False
