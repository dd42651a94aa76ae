"""Types of health checks and their results."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

import strawberry

from schema.enums import described
from server.db import tables
from server.probes import plan
from server.probes.problems import ERROR_TRAITS, ErrorKind, Severity
from server.probes.verdict import Health, health_of

described(
    Health,
    name="HealthStatus",
    description="Overall result of the probes of all endpoints.",
    values={
        "HEALTHY": "All endpoints respond.",
        "PARTIAL": "Some endpoints respond.",
        "UNHEALTHY": "No endpoint responds.",
    },
)
described(
    ErrorKind,
    name="HealthErrorKind",
    description="Why an endpoint is unhealthy.",
    values={
        "TIMEOUT": "No response in time.",
        "CONNECTION_REFUSED": "Connection refused.",
        "CONNECTION_RESET": "The connection was reset.",
        "DNS": "The host name could not be resolved.",
        "UNREACHABLE": "No route to the address.",
        "TLS": "The TLS handshake failed.",
        "BAD_GATEWAY": "HTTP 502 or 504 from a gateway.",
        "SERVICE_UNAVAILABLE": "HTTP 503.",
        "SERVER_ERROR": "Another HTTP status of 500 or above.",
        "CLIENT_ERROR": "An unexpected HTTP status below 500.",
        "BODY_ERROR": "The HTTP status was good, but the page is an error page.",
    },
)
described(
    Severity,
    name="HealthSeverity",
    description="Severity of a health problem.",
    values={
        "LOW": "Temporary, as stated by the service itself.",
        "MEDIUM": "Usual during startup.",
        "HIGH": "Needs attention.",
    },
)


@strawberry.type(description="Problem of an endpoint.")
class HealthError:
    kind: ErrorKind = strawberry.field(description="Stable error kind.")
    message: str = strawberry.field(description="Readable message.")
    severity: Severity = strawberry.field(description="Severity.")
    retryable: bool = strawberry.field(description="Whether a later probe may succeed.")


@strawberry.type(description="Result of the last probe of one endpoint.")
class EndpointHealth:
    port: int = strawberry.field(description="The port inside the instance.")
    type: str = strawberry.field(description="Type of probe. http: a GET request. tcp: a connection.")
    address: str | None = strawberry.field(description="Probed address; null if there was none yet.")
    healthy: bool = strawberry.field(description="Whether the endpoint is healthy.")
    http_status: int | None = strawberry.field(description="HTTP status of the response, if any.")
    latency: timedelta = strawberry.field(description="Duration of the probe.")
    error: HealthError | None = strawberry.field(description="The problem; null if healthy.")
    attempts: int = strawberry.field(description="Number of probes in this check.")
    checked_at: datetime = strawberry.field(description="When the last of these probes ended.")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "EndpointHealth":
        error = None
        if row["error_kind"] is not None:
            kind = ErrorKind(row["error_kind"])
            meaning = ERROR_TRAITS[kind]
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


@strawberry.type(description="Health of an instance's endpoints.")
class InstanceHealth:
    status: Health = strawberry.field(description="Overall result.")
    endpoints: list[EndpointHealth] = strawberry.field(description="Results by endpoint, sorted by port.")
    checked_at: datetime = strawberry.field(description="When the last probe ended.")

    @staticmethod
    def of(rows: Sequence[tables.ProbeRow]) -> "InstanceHealth | None":
        """None if nothing was probed in this run."""
        return _HealthOfRows(rows) if rows else None

    @classmethod
    def of_event(cls, health: Mapping[str, Any]) -> "InstanceHealth":
        """From the data of an event."""
        endpoints = [EndpointHealth.of(each) for each in health["endpoints"]]
        checked_at = max(endpoint.checked_at for endpoint in endpoints)
        return cls(status=Health(health["status"]), endpoints=endpoints, checked_at=checked_at)


class _HealthOfRows(InstanceHealth):
    """Its endpoints are made when they are selected: a list of instances most often shows the status alone."""

    stands_for: ClassVar = InstanceHealth

    def __init__(self, rows: Sequence[tables.ProbeRow]) -> None:
        self._rows = rows
        self.status = health_of(rows)
        self.checked_at = max(row.checked_at for row in rows)

    def __getattr__(self, name: str) -> Any:
        if name != "endpoints":
            raise AttributeError(name)
        return [EndpointHealth.of(row._asdict()) for row in self._rows]


@strawberry.input(
    description="Health checks before and after an instance becomes READY. Omitted fields use the server's defaults."
)
class HealthCheckInput:
    timeout: timedelta | None = strawberry.field(default=None, description="Timeout of one probe, 1 to 300 s.")
    retries: int | None = strawberry.field(
        default=None, description="Retries of an unhealthy endpoint within one check, 0 to 10."
    )
    delay: timedelta | None = strawberry.field(
        default=None, description="Delay before the first retry, 0.1 to 30 s; it doubles with each retry."
    )
    max_wait: timedelta | None = strawberry.field(
        default=None, description="Total time until the instance becomes FAILED, 30 to 1800 s."
    )
    path: str | None = strawberry.field(
        default=None, description="Path requested from http endpoints, such as /health."
    )
    expected_statuses: list[int] | None = strawberry.field(
        default=None, description="HTTP statuses that count as healthy, at most 20. Default: all below 400."
    )
    target_port: int | None = strawberry.field(
        default=None, description="The only port to check, http or tcp. Default: all ports, if any is http."
    )
    interval: timedelta | None = strawberry.field(
        default=None, description="How often it is probed while READY, 10 to 3600 s; 0: never."
    )
    failure_threshold: int | None = strawberry.field(
        default=None, description="Consecutive failed probes after which it is degraded, 1 to 10."
    )
    success_threshold: int | None = strawberry.field(
        default=None, description="Consecutive successful probes after which it is not degraded any more, 1 to 10."
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
            interval=_seconds(self.interval),
            failure_threshold=self.failure_threshold,
            success_threshold=self.success_threshold,
        )


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()
