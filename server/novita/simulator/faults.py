"""Everything that can be made to go wrong, matched by route, count and seeded chance."""

import random
from collections.abc import Iterable
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


# These answer in place of the world: nothing was done.
BEFORE = frozenset(
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
# These spoil the answer to something that was done.
AFTER = frozenset(
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
# These change what becomes of an instance; they match the create (or start) that makes it.
FATES = frozenset({FaultKind.PULL_FAILURE, FaultKind.SPOT_RECLAIM, FaultKind.LIST_LAG})


@dataclass(slots=True)
class Fault:
    """One switch. Seconds are real seconds, because the client's timeouts are."""

    kind: FaultKind
    # Patterns over "METHOD /path" without the provider's prefix, as in "POST /gpu/instance/*".
    routes: tuple[str, ...] = ("*",)
    # How many times it strikes before it is spent; None: for ever.
    times: int | None = None
    probability: float = 1.0
    # How many matching calls pass unharmed first.
    skip: int = 0
    # latency: how long. listLag: until listed. spotReclaim: from running to the notice. outage: its length.
    seconds: float = 0.0
    # latency: up to this much more, by seeded chance.
    jitter: float = 0.0
    # rateLimit, error: the Retry-After header, if any.
    retry_after: str | None = None
    # error, errorAfter, outage: what is answered. An outage with status 0 closes the connection.
    status: int = 500
    reason: str = "INTERNAL"
    message: str = "internal server error"
    # garbage: the body sent with status 200.
    body: str = "<html><body>maintenance mode</body></html>"
    # unknownStatus: the word to send instead.
    word: str = "hibernating"
    # listLag: hide the instance from a get by id as well.
    hide_from_get: bool = False
    struck: int = 0
    seen: int = 0
    # When an outage ends, in simulated time; set at its first call.
    until: float | None = field(default=None, repr=False)

    def matches(self, route: str) -> bool:
        return any(fnmatchcase(route, pattern) for pattern in self.routes)

    @property
    def spent(self) -> bool:
        return self.times is not None and self.struck >= self.times


class Faults:
    """The switches that are on, asked once per call."""

    def __init__(self, initial: Iterable[Fault], *, seed: int) -> None:
        self.active: list[Fault] = [replace(fault) for fault in initial]
        self._chance = random.Random(f"{seed}:faults")

    def set(self, faults: Iterable[Fault]) -> None:
        self.active = list(faults)

    def add(self, faults: Iterable[Fault]) -> None:
        self.active.extend(faults)

    def clear(self) -> None:
        self.active = []

    def strike(self, route: str, kinds: frozenset[FaultKind]) -> list[Fault]:
        """The faults of these kinds that hit this call. Asking counts, so ask once."""
        hits: list[Fault] = []
        for fault in self.active:
            if fault.kind not in kinds or fault.spent or not fault.matches(route):
                continue
            fault.seen += 1
            if fault.seen <= fault.skip:
                continue
            if fault.probability < 1 and self._chance.random() >= fault.probability:
                continue
            fault.struck += 1
            hits.append(fault)
        return hits

    def delay(self, fault: Fault) -> float:
        return fault.seconds + self._chance.random() * fault.jitter
