"""Injected faults, matched by route, count and seeded probability."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase


class FaultKind(StrEnum):
    LATENCY = "latency"
    RATE_LIMIT = "rateLimit"
    ERROR = "error"
    BAD_GATEWAY = "badGateway"
    HANG = "hang"
    DROP = "drop"
    CUT_JSON = "cutJson"
    CUT_CONNECTION = "cutConnection"
    GARBAGE = "garbage"
    OUTAGE = "outage"
    LOST_ANSWER = "lostAnswer"
    ERROR_AFTER = "errorAfter"
    HANG_AFTER = "hangAfter"
    INVALID_STATE_AFTER = "invalidStateAfter"
    UNKNOWN_STATUS = "unknownStatus"
    PULL_FAILURE = "pullFailure"
    SPOT_RECLAIM = "spotReclaim"
    LIST_LAG = "listLag"


# These replace the handler: nothing is done.
FAULTS_BEFORE = frozenset(
    {
        FaultKind.RATE_LIMIT,
        FaultKind.ERROR,
        FaultKind.BAD_GATEWAY,
        FaultKind.HANG,
        FaultKind.DROP,
        FaultKind.GARBAGE,
        FaultKind.OUTAGE,
    }
)
# These break the response after the handler has done its work.
FAULTS_AFTER = frozenset(
    {
        FaultKind.CUT_JSON,
        FaultKind.CUT_CONNECTION,
        FaultKind.LOST_ANSWER,
        FaultKind.ERROR_AFTER,
        FaultKind.HANG_AFTER,
        FaultKind.INVALID_STATE_AFTER,
        FaultKind.UNKNOWN_STATUS,
    }
)
# These change an instance's later course; they match its create or start.
INSTANCE_FAULTS = frozenset({FaultKind.PULL_FAILURE, FaultKind.SPOT_RECLAIM, FaultKind.LIST_LAG})


DEFAULT_STATUSES = {FaultKind.OUTAGE: 503, FaultKind.BAD_GATEWAY: 502}


@dataclass(slots=True)
class Fault:
    """One fault. Seconds are real seconds, like the client's timeouts."""

    kind: FaultKind
    # Patterns over "METHOD /path" without the provider's prefix, as in "POST /gpu/instance/*".
    routes: tuple[str, ...] = ("*",)
    # How many times it is applied; None: no limit.
    times: int | None = None
    probability: float = 1.0
    # How many matching requests pass first.
    skip: int = 0
    # latency: the delay. listLag: until listed. spotReclaim: from running to the notice. outage: its length.
    seconds: float = 0.0
    # latency: up to this much more, seeded.
    jitter: float = 0.0
    # rateLimit, error: the Retry-After header, if any.
    retry_after: str | None = None
    # error, errorAfter, outage, garbage: the status; default 500, for an outage 503; 0 closes the connection.
    # badGateway: the status of the gateway's page; default 502.
    status: int | None = None
    reason: str = "INTERNAL"
    message: str = "internal server error"
    # garbage: the body, sent with `status`, by default 200.
    body: str = "<html><body>maintenance mode</body></html>"
    # unknownStatus: the status to send instead.
    word: str = "hibernating"
    # listLag: hide the instance from a get by id as well.
    hide_from_get: bool = False
    struck: int = 0
    seen: int = 0
    # When an outage ends; set by its first request.
    until: float | None = field(default=None, repr=False)

    def matches(self, route: str) -> bool:
        return any(fnmatchcase(route, pattern) for pattern in self.routes)

    @property
    def answer_status(self) -> int:
        if self.status is not None:
            return self.status
        return DEFAULT_STATUSES.get(self.kind, 500)


class Faults:
    """The active faults."""

    def __init__(self, initial: Iterable[Fault], *, seed: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.active: list[Fault] = [replace(fault) for fault in initial]
        # Seeded, so that runs are reproducible.
        self._random = random.Random(f"{seed}:faults")

    def set(self, faults: Iterable[Fault]) -> None:
        self.active = list(faults)

    def add(self, faults: Iterable[Fault]) -> None:
        self.active.extend(faults)

    def clear(self) -> None:
        self.active = []

    def match_all(self, route: str, kinds: frozenset[FaultKind]) -> list[Fault]:
        """All faults of these kinds that apply to this request. Each call counts, so call it once per request."""
        return [fault for fault in self.active if fault.kind in kinds and self._strike(fault, route)]

    def match_first(self, route: str, kinds: frozenset[FaultKind]) -> Fault | None:
        """The first fault that applies; the later ones neither apply nor count."""
        return next((fault for fault in self.active if fault.kind in kinds and self._strike(fault, route)), None)

    def _strike(self, fault: Fault, route: str) -> bool:
        if not fault.matches(route):
            return False
        if fault.kind is FaultKind.OUTAGE and fault.seconds and fault.until is None:
            fault.until = self._monotonic() + fault.seconds  # an outage begins with its first request
        if self._is_spent(fault):
            return False
        fault.seen += 1
        if fault.seen <= fault.skip:
            return False
        if fault.probability < 1 and self._random.random() >= fault.probability:
            return False
        fault.struck += 1
        return True

    def _is_spent(self, fault: Fault) -> bool:
        """Without a number and a length it lasts until it is cleared."""
        is_used_up = fault.times is not None and fault.struck >= fault.times
        return is_used_up or (fault.until is not None and self._monotonic() >= fault.until)

    def delay(self, fault: Fault) -> float:
        return fault.seconds + self._random.random() * fault.jitter
