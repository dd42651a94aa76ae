"""One row of the tables of error codes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """`retryable`: whether the same request may succeed later. None: `retryable` of the error itself says."""

    code: str
    when: str
    help: str
    retryable: bool | None = False
