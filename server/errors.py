"""All exceptions of Pilotlight, as one tree.

PilotlightError
├── Refused                  the caller can act on it: has a code and the path of the field, becomes a GraphQL type
│   ├── Invalid              one or more problems with the input, all reported together
│   ├── NotFound             no such row in the caller's project
│   ├── IllegalTransition    the instance's status does not allow it
│   ├── OperationInProgress  another operation of that instance is in progress
│   ├── KeyReused            the idempotency key was used before with another input
│   ├── VersionConflict      the instance has changed since the caller read it
│   ├── NotCancellable       the operation has ended or can no longer be cancelled
│   ├── BudgetExceeded       a budget has less left than it may cost
│   └── NoCapacity           no product in any region fits
├── NovitaError              a provider problem: knows whether a retry can help
│   ├── RateLimited          429; knows when to retry
│   ├── CircuitOpen          the circuit breaker is open: no call is sent; knows when calls resume
│   │   └── Suspended        open because the provider refused our key or account
│   ├── ProviderTimeout      no response in time: the call may or may not have taken effect
│   ├── ProviderUnreachable  no connection, or a broken one
│   │   └── WrongProvider    the settings lead to another provider than the one that the database belongs to
│   ├── InsufficientResource no stock
│   ├── CandidateRefused     this product in this region can't serve; another may
│   ├── InvalidStateChange   the instance is in another state than the call needs
│   ├── ProviderNotFound     not found at the provider
│   ├── AuthFailed           the API key is wrong or lacks permission
│   ├── BalanceExhausted     no balance or budget left
│   │   └── PaymentRequired  402: nothing is done for this account until it is paid
│   ├── AccountLimitReached  a limit of the account is reached
│   ├── ValidationFailed     the provider refused a field
│   └── ProviderError        anything else: a 5xx, or an unreadable response
├── TooManyLiveReads         the caller's share of provider reads is used up; knows when to retry
├── LostClaim                a worker wrote with a claim it no longer holds
├── StartupProblem           the process can't start; one sentence for the person at the terminal
│   └── DatabaseAway         the database can't be reached at the moment
├── CursorExpired            the events after that cursor are no longer stored
└── Lagging                  the event log can't be read now; resume with the cursor, here or on another server
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID


class PilotlightError(Exception):
    """Base of all exceptions of Pilotlight."""


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
    """The input has problems; carries all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.code, first.message, first.path)
        self.problems = tuple(problems)


class NotFound(Refused):
    """No such row in the caller's project; another project's rows are not found either."""

    def __init__(self, what: str, path: Sequence[str] = ()) -> None:
        super().__init__(f"{what.upper().replace(' ', '_')}_NOT_FOUND", f"There is no such {what}.", path)


class IllegalTransition(Refused):
    """The instance's status does not allow the operation."""

    def __init__(self, code: str, message: str, *, current: str, allowed: Sequence[str]) -> None:
        super().__init__(code, message)
        self.current = current
        self.allowed = tuple(allowed)


class OperationInProgress(Refused):
    """Another operation of that instance is in progress."""

    def __init__(self, operation_id: UUID) -> None:
        super().__init__("OPERATION_IN_PROGRESS", "Another operation of this instance is in progress.")
        self.operation_id = operation_id


class KeyReused(Refused):
    """The idempotency key was used before with another input."""

    def __init__(self) -> None:
        super().__init__(
            "IDEMPOTENCY_KEY_REUSED",
            "This idempotency key was used before with another input.",
            ("input", "idempotencyKey"),
        )


class VersionConflict(Refused):
    """The instance has changed since the caller read it."""

    def __init__(self, current: int) -> None:
        message = f"The instance has changed: its version is now {current}."
        super().__init__("VERSION_CONFLICT", message, ("input", "expectedVersion"))
        self.current = current


class CountDiffers(Refused):
    """A bulk request's filter matches another number of instances than the caller expects."""

    def __init__(self, expected: int, actual: int) -> None:
        message = f"The filter matches {actual} instances, not {expected}; nothing was changed."
        super().__init__("COUNT_DIFFERS", message, ("input", "expectedCount"))
        self.expected = expected
        self.actual = actual


class NotCancellable(Refused):
    """The operation has ended or can no longer be cancelled."""

    def __init__(self, operation_id: UUID, message: str) -> None:
        super().__init__("NOT_CANCELLABLE", message)
        self.operation_id = operation_id


class LifetimeAbovePolicy(Refused):
    """The lifetime is longer than the project's policy allows."""

    def __init__(self, at_most: timedelta, path: Sequence[str]) -> None:
        message = f"The project allows at most {at_most // timedelta(seconds=1)} s."
        super().__init__("LIFETIME_ABOVE_POLICY", message, path)
        self.at_most = at_most


class NoCapacity(Refused):
    """No product in any region fits; carries what was tried and why each was refused."""

    def __init__(self, code: str, message: str, attempts: Sequence[Any]) -> None:
        super().__init__(code, message)
        self.attempts = tuple(attempts)


class NovitaError(PilotlightError):
    """A provider problem. `code` is shown to callers, `retryable` says whether the same request may succeed later."""

    code: str = "PROVIDER_ERROR"
    retryable: ClassVar[bool] = False
    # Whether a create goes on to the next candidate: the refusal holds for one product in one region only.
    tries_next: ClassVar[bool] = False

    # Whether it is certain that the call changed nothing at the provider. Only then may a create be sent again;
    # otherwise a machine may exist and be billed, and has to be looked up first. The class has the default, the
    # client corrects it per call (a failed connect is certain, a broken connection is not).
    is_certain_refusal: bool = False

    def __init__(self, message: str, *, status: int | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class RateLimited(NovitaError):
    """429. `retry_after` comes from the response, if it has one."""

    code = "RATE_LIMITED"
    retryable = True
    is_certain_refusal = True

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, status: int | None = 429, reason: str | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class CircuitOpen(NovitaError):
    """The circuit breaker is open after many failures; no call was sent."""

    code = "CIRCUIT_OPEN"
    retryable = True
    is_certain_refusal = True

    def __init__(self, message: str, *, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Suspended(CircuitOpen):
    """The provider refused our key or account a moment ago; no call is sent until the next probe."""

    code = "PROVIDER_SUSPENDED"


class ProviderTimeout(NovitaError):
    """No response in time: the call may or may not have taken effect."""

    code = "NETWORK_ERROR"
    retryable = True


class ProviderUnreachable(NovitaError):
    """No connection, or a broken one: the call may or may not have taken effect."""

    code = "NETWORK_ERROR"
    retryable = True


class WrongProvider(ProviderUnreachable):
    """The settings lead to another provider than the one that the database belongs to. The right one is out of reach
    until they are corrected, so work waits as in an outage, without an end."""


class InsufficientResource(NovitaError):
    """No stock: try another region or product, or retry later."""

    code = "RESOURCE_CONSTRAINTS"
    retryable = True
    tries_next = True
    is_certain_refusal = True


class CandidateRefused(NovitaError):
    """This product in this region can't serve the request, for another reason than stock; another may."""

    code = "CANDIDATE_REFUSED"
    tries_next = True
    is_certain_refusal = True


class InvalidStateChange(NovitaError):
    """The instance is in another state than the call needs; read it again before acting on this."""

    code = "INVALID_STATE_CHANGE"


class ProviderNotFound(NovitaError):
    """Not found at the provider."""

    code = "PROVIDER_NOT_FOUND"
    is_certain_refusal = True


class AuthFailed(NovitaError):
    """The API key is wrong or lacks permission."""

    code = "PROVIDER_AUTH_FAILED"
    retryable = True  # the request is not at fault: it succeeds as soon as the key is accepted again
    is_certain_refusal = True


class BalanceExhausted(NovitaError):
    """No balance or budget left."""

    code = "BALANCE_EXHAUSTED"
    is_certain_refusal = True


class PaymentRequired(BalanceExhausted):
    """402: the provider does nothing for this account until it is paid."""

    code = "PAYMENT_REQUIRED"
    retryable = True


class AccountLimitReached(NovitaError):
    """A limit of the account is reached."""

    code = "QUOTA_EXCEEDED"
    is_certain_refusal = True


class ValidationFailed(NovitaError):
    """The provider refused a field."""

    code = "PROVIDER_VALIDATION_FAILED"
    is_certain_refusal = True


class ProviderError(NovitaError):
    """Anything else: a 5xx, or an unreadable response."""

    retryable = True


# 401, 402 and 403: our key or account is refused, whatever the request. Work waits for the end of it as for an outage.
AccountRefusal = AuthFailed | PaymentRequired | Suspended


class BudgetExceeded(Refused):
    """A budget has less left than the work may cost. Amounts are in millionths of a dollar."""

    def __init__(self, budget: tuple[UUID, str], remaining: int, needed: int, resets_at: datetime | None) -> None:
        message = f"It may cost {needed / 1e6:.2f} USD; the budget {budget[1]} has {remaining / 1e6:.2f} USD left."
        super().__init__("BUDGET_EXCEEDED", message)
        self.budget_id, self.budget_name = budget
        self.remaining_micros, self.needed_micros, self.resets_at = remaining, needed, resets_at


class QueueFull(Refused):
    """Too many creates of the project wait for the provider already."""

    def __init__(self, limit: int, retry_after: timedelta) -> None:
        seconds = round(retry_after.total_seconds())
        super().__init__(
            "QUEUE_FULL", f"{limit} creates of this project are waiting already; try again in about {seconds} s."
        )
        self.retry_after = retry_after


class TooManyLiveReads(PilotlightError):
    """The caller's share of reads that cost a provider call each is used up; the provider was not called."""

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("Too many requests that read from the provider, of this token, its project or all projects.")
        self.retry_after = retry_after


class LostClaim(PilotlightError):
    """A worker wrote with a claim it no longer holds; the write changed nothing."""


class StartupProblem(PilotlightError):
    """The process can't start; the message is one sentence for the person at the terminal."""


class DatabaseAway(StartupProblem):
    """The database can't be reached at the moment; it may be starting."""


class CursorExpired(PilotlightError):
    """The events after that cursor are no longer stored."""


class Lagging(PilotlightError):
    """The event log can't be read at the moment; resume with the cursor, here or on another server."""
