"""A health check: which endpoints are probed next, and what all results together mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from server.db.tables.probe import ProbeResult
from server.db.tables.rows import ProbeLike
from server.probes.plan import CheckPlan, ProbeTarget
from server.probes.probe import ProbeOutcome
from server.probes.problems import ERROR_TRAITS, ErrorKind


class Health(StrEnum):
    """Health of an instance, from all its endpoints."""

    HEALTHY = "HEALTHY"
    PARTIAL = "PARTIAL"
    UNHEALTHY = "UNHEALTHY"


@dataclass(frozen=True, slots=True)
class CheckRound:
    """The endpoints to probe now, and the earlier results of this check."""

    before: Mapping[int, ProbeResult]
    due: tuple[ProbeTarget, ...]


def next_round(
    targets: Sequence[ProbeTarget], results: Sequence[ProbeResult], plan: CheckPlan, *, since: datetime
) -> CheckRound:
    """Continue the current check, or begin a new one if it has ended. `since` is when checking began.

    The state is in the rows, so any worker can run the next round, also after a kill.
    """
    known = {result.port: result for result in results if result.checked_at >= since}
    before = {target.port: known[target.port] for target in targets if target.port in known}
    unsettled = tuple(t for t in targets if t.port not in before or not is_settled(before[t.port], plan))
    if unsettled:
        return CheckRound(before, unsettled)
    return CheckRound({}, tuple(targets))


def is_settled(result: ProbeResult, plan: CheckPlan) -> bool:
    """Whether this check is done with the endpoint."""
    return result.is_healthy or result.attempts > plan.retries or not is_retryable(result)


def is_retryable(result: ProbeResult) -> bool:
    return result.error_kind is not None and ERROR_TRAITS[ErrorKind(result.error_kind)].retryable


def merge_outcomes(round: CheckRound, outcomes: Sequence[ProbeOutcome], *, at: datetime) -> list[ProbeResult]:
    """All results of the check so far, ordered by port."""
    merged = dict(round.before)
    for outcome in outcomes:
        port = outcome.target.port
        earlier = round.before.get(port)
        merged[port] = ProbeResult(
            port=port,
            type=outcome.target.type,
            address=outcome.target.address,
            is_healthy=outcome.is_healthy,
            http_status=outcome.http_status,
            latency_ms=latency_ms(outcome),
            error_kind=outcome.error,
            message=outcome.message,
            attempts=1 + (earlier.attempts if earlier is not None else 0),
            checked_at=at,
        )
    return [merged[port] for port in sorted(merged)]


def latency_ms(outcome: ProbeOutcome) -> float:
    return round(outcome.latency.total_seconds() * 1000, 3)


def health_of(results: Sequence[ProbeLike]) -> Health:
    healthy = sum(result.is_healthy for result in results)
    if healthy == len(results):
        return Health.HEALTHY
    return Health.PARTIAL if healthy else Health.UNHEALTHY


def results_to_json(results: Sequence[ProbeResult]) -> list[dict[str, Any]]:
    """The results as in an event."""
    return [
        {
            "port": result.port,
            "type": result.type,
            "address": result.address,
            "is_healthy": result.is_healthy,
            "http_status": result.http_status,
            "latency_ms": result.latency_ms,
            "error_kind": result.error_kind,
            "message": result.message,
            "attempts": result.attempts,
            "checked_at": result.checked_at.isoformat(),
        }
        for result in results
    ]


def summary(results: Sequence[ProbeResult]) -> str:
    """One line for people: the problem of each unhealthy endpoint."""
    bad = [
        f"{result.address or f'port {result.port}'}: {result.message} ({result.error_kind})"
        for result in results
        if not result.is_healthy
    ]
    return "; ".join(bad)
