"""A check: every endpoint probed, those that were unhealthy again, and what all of that means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from server.db.tables.probe import ProbeResult
from server.probes.kinds import MEANING, ErrorKind
from server.probes.plan import Plan, Target
from server.probes.probe import Finding


class Health(StrEnum):
    """What all endpoints together mean."""

    HEALTHY = "HEALTHY"
    PARTIAL = "PARTIAL"
    UNHEALTHY = "UNHEALTHY"


@dataclass(frozen=True, slots=True)
class Round:
    """Which endpoints are probed now, and how often each was probed before in this check."""

    before: Mapping[int, ProbeResult]
    due: tuple[Target, ...]


def next_round(targets: Sequence[Target], results: Sequence[ProbeResult], plan: Plan, *, since: datetime) -> Round:
    """Go on with the check that is under way, or begin another when it is over. `since` is when checking began.

    What is known stays in the rows, so that it does not matter who runs the next round, nor who was killed.
    """
    known = {result.port: result for result in results if result.checked_at >= since}
    before = {target.port: known[target.port] for target in targets if target.port in known}
    unsettled = tuple(t for t in targets if t.port not in before or not is_settled(before[t.port], plan))
    if unsettled:
        return Round(before, unsettled)
    return Round({}, tuple(targets))


def is_settled(result: ProbeResult, plan: Plan) -> bool:
    """Whether this check has nothing more to ask of the endpoint."""
    return result.is_healthy or result.attempts > plan.retries or not is_retryable(result)


def is_retryable(result: ProbeResult) -> bool:
    return result.error_kind is not None and MEANING[ErrorKind(result.error_kind)].retryable


def after_round(round: Round, findings: Sequence[Finding], *, at: datetime) -> list[ProbeResult]:
    """All results of the check so far, in the order of their ports."""
    merged = dict(round.before)
    for finding in findings:
        port = finding.target.port
        earlier = round.before.get(port)
        merged[port] = ProbeResult(
            port=port,
            type=finding.target.type,
            address=finding.target.address,
            is_healthy=finding.is_healthy,
            http_status=finding.http_status,
            latency_ms=round_ms(finding),
            error_kind=finding.error,
            message=finding.message,
            attempts=1 + (earlier.attempts if earlier is not None else 0),
            checked_at=at,
        )
    return [merged[port] for port in sorted(merged)]


def round_ms(finding: Finding) -> float:
    return round(finding.latency.total_seconds() * 1000, 3)


def health_of(results: Sequence[ProbeResult]) -> Health:
    healthy = sum(result.is_healthy for result in results)
    if healthy == len(results):
        return Health.HEALTHY
    return Health.PARTIAL if healthy else Health.UNHEALTHY


def told(results: Sequence[ProbeResult]) -> list[dict[str, Any]]:
    """As an event has them."""
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
    """One line for people: what was wrong with each."""
    bad = [
        f"{result.address or f'port {result.port}'}: {result.message} ({result.error_kind})"
        for result in results
        if not result.is_healthy
    ]
    return "; ".join(bad)
