"""Every exception of ours, as one tree.

PilotlightError
├── Refused                  the caller's affair: carries a code and the path of the field, reaches GraphQL as a type
│   ├── Invalid              one or more problems with the input, all reported together
│   ├── NotFound             no such row in the caller's project
│   ├── IllegalMove          the instance's status does not allow it
│   ├── OperationInProgress  another operation of that instance is not over
│   ├── KeyReused            the same idempotency key came with another input
│   ├── VersionConflict      the instance has changed since the caller last saw it
│   ├── NotCancellable       the operation is over, or past the point where it could be called off
│   └── NoCapacity           no product in any region fits
├── NovitaError              the provider's affair: knows whether a retry can help
│   ├── RateLimited          429; knows when to come back
│   ├── CircuitOpen          we are not calling at all; knows when we will
│   ├── ProviderTimeout      no answer in time: what was asked may or may not have happened
│   ├── ProviderUnreachable  no connection, or it broke
│   ├── InsufficientResource no stock
│   ├── InvalidStateChange   the instance is in another state than the call needs
│   ├── ProviderNotFound     the provider has no such thing
│   ├── AuthFailed           the key is wrong or may not do this
│   ├── BalanceExhausted     money or quota
│   ├── ValidationFailed     the provider refused a field
│   └── ProviderError        anything else: a 5xx, or an answer nobody can read
├── LostClaim                a worker wrote under a claim that is no longer its own
├── StartupProblem           the process can't start; one sentence for the person at the terminal
├── CursorExpired            the events after that cursor are no longer kept
└── Lagging                  the event log can't be followed at the moment; resume with the cursor, here or elsewhere
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID


class PilotlightError(Exception):
    """The root of the tree."""


class Refused(PilotlightError):
    """An error that the caller can understand and act on."""

    def __init__(self, code: str, message: str, path: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.path = tuple(path)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the input."""

    code: str
    message: str
    path: tuple[str, ...]


class Invalid(Refused):
    """The input has problems; all of them are here."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.code, first.message, first.path)
        self.problems = tuple(problems)


class NotFound(Refused):
    """No such row in the caller's project; another project's rows are not found either."""

    def __init__(self, what: str, path: Sequence[str] = ()) -> None:
        super().__init__(f"{what.upper().replace(' ', '_')}_NOT_FOUND", f"There is no such {what}.", path)


class IllegalMove(Refused):
    """The instance's status does not allow what was asked."""

    def __init__(self, code: str, message: str, *, current: str, allowed: Sequence[str]) -> None:
        super().__init__(code, message)
        self.current = current
        self.allowed = tuple(allowed)


class OperationInProgress(Refused):
    """Another operation of that instance is not over."""

    def __init__(self, operation_id: UUID) -> None:
        super().__init__("OPERATION_IN_PROGRESS", "Another operation of this instance is not over yet.")
        self.operation_id = operation_id


class KeyReused(Refused):
    """The same idempotency key came with another input."""

    def __init__(self) -> None:
        super().__init__(
            "IDEMPOTENCY_KEY_REUSED",
            "This idempotency key was used before with another input.",
            ("input", "idempotencyKey"),
        )


class VersionConflict(Refused):
    """The instance has changed since the caller last saw it."""

    def __init__(self, current: int) -> None:
        message = f"The instance has changed meanwhile: it is at version {current} now."
        super().__init__("VERSION_CONFLICT", message, ("input", "expectedVersion"))
        self.current = current


class NotCancellable(Refused):
    """The operation is over, or past the point where it could be called off."""

    def __init__(self, operation_id: UUID, message: str) -> None:
        super().__init__("NOT_CANCELLABLE", message)
        self.operation_id = operation_id


class NoCapacity(Refused):
    """No product in any region fits; says what was tried and why each was refused."""

    def __init__(self, code: str, message: str, attempts: Sequence[Any]) -> None:
        super().__init__(code, message)
        self.attempts = tuple(attempts)


class NovitaError(PilotlightError):
    """The provider's affair. `code` is for people and programs, `retryable` for our own workers."""

    code: ClassVar[str] = "PROVIDER_ERROR"
    retryable: ClassVar[bool] = False

    # Whether it is certain that the call changed nothing at the provider. Only then may a create be asked for again;
    # otherwise something may exist and be billed, and has to be looked up first. The class says what is usual, the
    # client corrects it per call (no connection at all is certain, one that broke is not).
    is_certain_refusal: bool = False

    def __init__(self, message: str, *, status: int | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class RateLimited(NovitaError):
    """429: too fast. `retry_after` is what the provider asked for, if it did."""

    code = "RATE_LIMITED"
    retryable = True
    is_certain_refusal = True

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, status: int | None = 429, reason: str | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class CircuitOpen(NovitaError):
    """The provider failed so often that we are not calling for now."""

    code = "CIRCUIT_OPEN"
    retryable = True
    is_certain_refusal = True

    def __init__(self, message: str, *, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ProviderTimeout(NovitaError):
    """No answer in time: what was asked may or may not have happened."""

    code = "NETWORK_ERROR"
    retryable = True


class ProviderUnreachable(NovitaError):
    """No connection, or it broke: what was asked may or may not have happened."""

    code = "NETWORK_ERROR"
    retryable = True


class InsufficientResource(NovitaError):
    """No stock: another region or product, or later."""

    code = "RESOURCE_CONSTRAINTS"
    retryable = True
    is_certain_refusal = True


class InvalidStateChange(NovitaError):
    """The instance is in another state than the call needs; re-read before believing it."""

    code = "INVALID_STATE_CHANGE"


class ProviderNotFound(NovitaError):
    """The provider has no such thing."""

    code = "PROVIDER_NOT_FOUND"
    is_certain_refusal = True


class AuthFailed(NovitaError):
    """The key is wrong, or may not do this."""

    code = "PROVIDER_AUTH_FAILED"
    is_certain_refusal = True


class BalanceExhausted(NovitaError):
    """Money or quota."""

    code = "BALANCE_EXHAUSTED"
    is_certain_refusal = True


class ValidationFailed(NovitaError):
    """The provider refused a field."""

    code = "PROVIDER_VALIDATION_FAILED"
    is_certain_refusal = True


class ProviderError(NovitaError):
    """Anything else: a 5xx, or an answer that nobody can read."""

    retryable = True


class LostClaim(PilotlightError):
    """A worker wrote under a claim that is no longer its own; the write changed nothing."""


class StartupProblem(PilotlightError):
    """The process can't start; the message is one sentence for the person at the terminal."""


class CursorExpired(PilotlightError):
    """The events after that cursor are no longer kept."""


class Lagging(PilotlightError):
    """The event log can't be followed at the moment; resume with the cursor, here or elsewhere."""
