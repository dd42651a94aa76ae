"""Tells a failing network of our own from failing applications: it makes most endpoints unreachable at once."""

import time
from collections.abc import Sequence
from uuid import UUID

import structlog

from server.db.tables.probe import ProbeResult
from server.observe import metrics
from server.probes.problems import ErrorKind
from server.probes.watch import Finding

log = structlog.get_logger(__name__)

# More than this share of the instances, and at least this many, do not become unreachable at once.
MASS_SHARE = 0.5
MASS_MIN = 3
# Seconds for which the last result of an instance counts.
RESULT_TTL = 300.0
NO_RESPONSE = frozenset(
    {
        ErrorKind.TIMEOUT,
        ErrorKind.CONNECTION_REFUSED,
        ErrorKind.CONNECTION_RESET,
        ErrorKind.DNS,
        ErrorKind.UNREACHABLE,
    }
)


def is_unreachable(results: Sequence[ProbeResult]) -> bool:
    """Whether no endpoint sent any response, not even an error."""
    return bool(results) and all(result.error_kind in NO_RESPONSE for result in results)


class Reachability:
    """The last result of each instance that this process has probed. Each process has a network of its own."""

    def __init__(self) -> None:
        self._last: dict[UUID, tuple[float, bool]] = {}

    def record_round(self, findings: Sequence[Finding]) -> bool:
        """Record a round of probes. True if so few instances can be reached that the fault is likely ours."""
        moment = time.monotonic()
        self._last = {id: last for id, last in self._last.items() if last[0] > moment - RESULT_TTL}
        for each in findings:
            self._last[each.watched.instance_id] = (moment, is_unreachable(each.results))
        unreachable = sum(is_down for _, is_down in self._last.values())
        is_mass = unreachable >= MASS_MIN and unreachable > MASS_SHARE * len(self._last)
        if is_mass and any(is_unreachable(each.results) for each in findings):
            log.error("health.network_down", unreachable=unreachable, watched=len(self._last))
            metrics.MASS_DEGRADATIONS.add()
        return is_mass
