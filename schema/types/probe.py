"""Health as callers see it, and as they ask for it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import strawberry

from schema.words import described
from server.db import tables
from server.probes import plan
from server.probes.check import Health, health_of
from server.probes.kinds import MEANING, ErrorKind, Severity

described(
    Health,
    name="HealthStatus",
    description="What the probes of all endpoints mean together.",
    values={"HEALTHY": "All endpoints answer.", "PARTIAL": "Some do.", "UNHEALTHY": "None does."},
)
described(
    ErrorKind,
    name="HealthErrorKind",
    description="Why a probe found its endpoint unhealthy.",
    values={
        "TIMEOUT": "It did not answer in time.",
        "CONNECTION_REFUSED": "Nobody listens there.",
        "CONNECTION_RESET": "The connection broke.",
        "DNS": "Its name is not known.",
        "UNREACHABLE": "There is no way to its address.",
        "TLS": "No secure connection could be made.",
        "BAD_GATEWAY": "A gateway before it answered 502 or 504.",
        "SERVICE_UNAVAILABLE": "It answered 503.",
        "SERVER_ERROR": "It answered with another status of 500 or more.",
        "CLIENT_ERROR": "It answered with a status that was not expected, below 500.",
        "BODY_ERROR": "Its status was good, but its page says that it is an error.",
    },
)
described(
    Severity,
    name="HealthSeverity",
    description="How bad it is that an endpoint is unhealthy.",
    values={
        "LOW": "It says itself that it will be back.",
        "MEDIUM": "Usual while something starts.",
        "HIGH": "Somebody has to look.",
    },
)


@strawberry.type(description="What was wrong with an endpoint.")
class HealthError:
    kind: ErrorKind = strawberry.field(description="A stable word for programs.")
    message: str = strawberry.field(description="A sentence for people.")
    severity: Severity = strawberry.field(description="How bad that is.")
    retryable: bool = strawberry.field(description="Whether another probe may find it well.")


@strawberry.type(description="What the last probe of one endpoint found.")
class EndpointHealth:
    port: int = strawberry.field(description="The port inside the instance.")
    type: str = strawberry.field(description="How it is probed. http: it is asked with GET. tcp: it is connected to.")
    address: str | None = strawberry.field(description="Where it was probed; null when it had no address yet.")
    healthy: bool = strawberry.field(description="Whether it answered as it should.")
    http_status: int | None = strawberry.field(description="The status of its answer, if there was one.")
    latency: timedelta = strawberry.field(description="How long the probe took.")
    error: HealthError | None = strawberry.field(description="What was wrong; null when it is healthy.")
    attempts: int = strawberry.field(description="How often it was probed in this check.")
    checked_at: datetime = strawberry.field(description="When the last of these probes was over.")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "EndpointHealth":
        error = None
        if row["error_kind"] is not None:
            kind = ErrorKind(row["error_kind"])
            meaning = MEANING[kind]
            error = HealthError(
                kind=kind, message=row["message"] or "", severity=meaning.severity, retryable=meaning.retryable
            )
        at = row["checked_at"]
        return cls(
            port=row["port"],
            type=row["type"],
            address=row["address"],
            healthy=row["is_healthy"],
            http_status=row["http_status"],
            latency=timedelta(milliseconds=row["latency_ms"]),
            error=error,
            attempts=row["attempts"],
            checked_at=datetime.fromisoformat(at) if isinstance(at, str) else at,
        )


@strawberry.type(description="What the probes of an instance's endpoints found.")
class InstanceHealth:
    status: Health = strawberry.field(description="What all of it means.")
    endpoints: list[EndpointHealth] = strawberry.field(description="Each endpoint, by port.")
    checked_at: datetime = strawberry.field(description="When the last probe was over.")

    @classmethod
    def of(cls, rows: Sequence[tables.ProbeResult]) -> "InstanceHealth | None":
        """None where nothing was probed in this run."""
        if not rows:
            return None
        endpoints = [EndpointHealth.of(vars(row)) for row in rows]
        return cls(status=health_of(rows), endpoints=endpoints, checked_at=max(row.checked_at for row in rows))

    @classmethod
    def told(cls, health: Mapping[str, Any]) -> "InstanceHealth":
        """As an event has it."""
        endpoints = [EndpointHealth.of(each) for each in health["endpoints"]]
        checked_at = max(endpoint.checked_at for endpoint in endpoints)
        return cls(status=Health(health["status"]), endpoints=endpoints, checked_at=checked_at)


@strawberry.input(description="How an instance is checked before it is READY; what is left out is the server's choice.")
class HealthCheckInput:
    timeout: timedelta | None = strawberry.field(default=None, description="How long one probe may take, 1 to 300 s.")
    retries: int | None = strawberry.field(
        default=None, description="Further probes of an unhealthy endpoint before a check has its verdict, 0 to 10."
    )
    delay: timedelta | None = strawberry.field(
        default=None, description="The pause before the first of them, 0.1 to 30 s; it doubles from one to the next."
    )
    max_wait: timedelta | None = strawberry.field(
        default=None, description="How long all of it may take before the instance has FAILED, 30 to 1800 s."
    )
    path: str | None = strawberry.field(default=None, description="What to ask http endpoints for, such as /health.")
    expected_statuses: list[int] | None = strawberry.field(
        default=None, description="The only healthy answers, at most 20; without it any below 400."
    )
    target_port: int | None = strawberry.field(
        default=None, description="The one port to check, http or tcp; without it all, if any speaks http."
    )

    def to_draft(self) -> plan.HealthCheckDraft:
        statuses = self.expected_statuses
        return plan.HealthCheckDraft(
            timeout=_seconds(self.timeout),
            retries=self.retries,
            delay=_seconds(self.delay),
            max_wait=_seconds(self.max_wait),
            path=self.path,
            expected_statuses=None if statuses is None else tuple(statuses),
            target_port=self.target_port,
        )


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()
