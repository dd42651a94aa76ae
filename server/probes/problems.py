"""Kinds of probe errors, their severity, and whether a retry may help."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How serious a probe error is."""

    LOW = "LOW"  # temporary, as the endpoint itself says
    MEDIUM = "MEDIUM"  # usual while an application starts
    HIGH = "HIGH"  # needs a person


class ErrorKind(StrEnum):
    """Why an endpoint is unhealthy."""

    TIMEOUT = "TIMEOUT"
    CONNECTION_REFUSED = "CONNECTION_REFUSED"
    CONNECTION_RESET = "CONNECTION_RESET"
    DNS = "DNS"
    UNREACHABLE = "UNREACHABLE"
    TLS = "TLS"
    BAD_GATEWAY = "BAD_GATEWAY"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    SERVER_ERROR = "SERVER_ERROR"
    CLIENT_ERROR = "CLIENT_ERROR"
    BODY_ERROR = "BODY_ERROR"


@dataclass(frozen=True, slots=True)
class ErrorTraits:
    severity: Severity
    retryable: bool


ERROR_TRAITS: dict[ErrorKind, ErrorTraits] = {
    ErrorKind.TIMEOUT: ErrorTraits(Severity.MEDIUM, retryable=True),
    ErrorKind.CONNECTION_REFUSED: ErrorTraits(Severity.MEDIUM, retryable=True),
    ErrorKind.CONNECTION_RESET: ErrorTraits(Severity.MEDIUM, retryable=True),
    ErrorKind.DNS: ErrorTraits(Severity.HIGH, retryable=True),  # a new machine's name may take a while to appear
    ErrorKind.UNREACHABLE: ErrorTraits(Severity.HIGH, retryable=True),
    ErrorKind.TLS: ErrorTraits(Severity.HIGH, retryable=False),
    ErrorKind.BAD_GATEWAY: ErrorTraits(Severity.MEDIUM, retryable=True),
    ErrorKind.SERVICE_UNAVAILABLE: ErrorTraits(Severity.LOW, retryable=True),
    ErrorKind.SERVER_ERROR: ErrorTraits(Severity.HIGH, retryable=True),
    ErrorKind.CLIENT_ERROR: ErrorTraits(Severity.HIGH, retryable=False),
    ErrorKind.BODY_ERROR: ErrorTraits(Severity.MEDIUM, retryable=True),
}


def error_kind_of_status(status: int) -> ErrorKind:
    """The error kind of an unexpected status."""
    if status in (502, 504):
        return ErrorKind.BAD_GATEWAY
    if status == 503:
        return ErrorKind.SERVICE_UNAVAILABLE
    return ErrorKind.SERVER_ERROR if status >= 500 else ErrorKind.CLIENT_ERROR
