"""What can be wrong with an endpoint: how bad that is, and whether another probe may find it well."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much it takes to put it right."""

    LOW = "LOW"  # it says itself that it will be back
    MEDIUM = "MEDIUM"  # usual for an application that is not up yet
    HIGH = "HIGH"  # somebody has to look


class ErrorKind(StrEnum):
    """Why a probe found its endpoint unhealthy."""

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
class Meaning:
    severity: Severity
    retryable: bool


MEANING: dict[ErrorKind, Meaning] = {
    ErrorKind.TIMEOUT: Meaning(Severity.MEDIUM, retryable=True),
    ErrorKind.CONNECTION_REFUSED: Meaning(Severity.MEDIUM, retryable=True),
    ErrorKind.CONNECTION_RESET: Meaning(Severity.MEDIUM, retryable=True),
    ErrorKind.DNS: Meaning(Severity.HIGH, retryable=True),  # the name of a new machine may take a while to be known
    ErrorKind.UNREACHABLE: Meaning(Severity.HIGH, retryable=True),
    ErrorKind.TLS: Meaning(Severity.HIGH, retryable=False),
    ErrorKind.BAD_GATEWAY: Meaning(Severity.MEDIUM, retryable=True),
    ErrorKind.SERVICE_UNAVAILABLE: Meaning(Severity.LOW, retryable=True),
    ErrorKind.SERVER_ERROR: Meaning(Severity.HIGH, retryable=True),
    ErrorKind.CLIENT_ERROR: Meaning(Severity.HIGH, retryable=False),
    ErrorKind.BODY_ERROR: Meaning(Severity.MEDIUM, retryable=True),
}


def kind_of_status(status: int) -> ErrorKind:
    """What an answer with a status that was not expected means."""
    if status in (502, 504):
        return ErrorKind.BAD_GATEWAY
    if status == 503:
        return ErrorKind.SERVICE_UNAVAILABLE
    return ErrorKind.SERVER_ERROR if status >= 500 else ErrorKind.CLIENT_ERROR
