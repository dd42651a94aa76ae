"""Every error code that callers can see: when it occurs, whether a retry can help, and what to do.

`help` in the API and docs/errors.md come from these tables; a test compares them with the codes in the sources.
"""

from collections.abc import Mapping

from server.error_codes import operations, refusals, requests
from server.error_codes.code import ErrorCode

__all__ = ["BY_CODE", "TOPICS", "ErrorCode", "help_of"]

# Title of the section in docs/errors.md, where the code is found, and the codes.
TOPICS: tuple[tuple[str, str, tuple[ErrorCode, ...]], ...] = (
    ("Operations", "`Operation.error`, `Instance.failure` and `Attempt.reasonCode`", operations.CODES),
    ("Refused requests", "`errors` of a mutation's payload and of `quote`", refusals.CODES),
    ("Placement", "`reasonCode` of a quote's candidate, and `attempts` of a refusal", refusals.PLACEMENT),
    ("Warnings", "`warnings` of `fleet`", requests.WARNINGS),
    ("Requests", "`errors` of a GraphQL response, in `extensions.code`", requests.CODES),
)

BY_CODE: Mapping[str, ErrorCode] = {code.code: code for _, _, codes in reversed(TOPICS) for code in codes}


def help_of(code: str) -> str | None:
    """What the caller can do about an error; None for a code that this version does not know."""
    known = BY_CODE.get(code)
    return None if known is None else known.help
