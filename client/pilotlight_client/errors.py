"""Everything that the client raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotlight_client.models import MutationError, Operation


class PilotlightError(Exception):
    """The base of all errors of this package."""


class NotConfigured(PilotlightError):
    """No server was named, and none runs in this folder."""


class Unreachable(PilotlightError):
    """The server did not respond. A request that may be repeated was sent several times."""


class RequestFailed(PilotlightError):
    """The server did not execute the request: no token, a limit, a malformed document, a fault."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        is_retryable: bool = False,
        request_id: str | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.is_retryable = is_retryable
        self.request_id = request_id
        self.retry_after = retry_after


class Unauthenticated(RequestFailed):
    """The token is missing, unknown, expired or revoked."""


class Forbidden(RequestFailed):
    """The role of the token does not allow the request."""


class CursorExpired(RequestFailed):
    """The events after the cursor are not stored any more: read the current state and continue from there."""


class Refused(PilotlightError):
    """The server refused the content of the request; nothing was written."""

    def __init__(self, errors: Sequence[MutationError]) -> None:
        super().__init__("; ".join(f"{error.code}: {error.message}" for error in errors))
        self.errors = tuple(errors)

    @property
    def code(self) -> str:
        """The code of the first reason."""
        return self.errors[0].code


class NotFound(PilotlightError):
    """There is no such object, or it is not visible to the token."""


class OperationFailed(PilotlightError):
    """The operation ended, but not with success."""

    def __init__(self, operation: Operation) -> None:
        error = operation.error
        reason = f": {error.code}: {error.message}" if error is not None else ""
        super().__init__(f"{operation.kind} {operation.id} ended {operation.status}{reason}")
        self.operation = operation


class WaitTimedOut(PilotlightError):
    """The operation goes on; only the wait for it has ended."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(f"{operation.kind} {operation.id} is still {operation.status} ({operation.phase})")
        self.operation = operation


REQUEST_ERRORS: dict[str, type[RequestFailed]] = {
    "UNAUTHENTICATED": Unauthenticated,
    "FORBIDDEN": Forbidden,
    "CURSOR_EXPIRED": CursorExpired,
}
