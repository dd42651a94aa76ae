"""The provider's reasons in one table: the error that each becomes, and the code that callers see.

The reasons are those that the provider's own console knows. An error class decides what happens next: whether a retry
can help, and whether a create goes on to the next candidate or stops. docs/errors.md shows this table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from server.errors import (
    AccountLimitReached,
    AuthFailed,
    BalanceExhausted,
    CandidateRefused,
    InsufficientResource,
    InvalidStateChange,
    NovitaError,
    ProviderNotFound,
    RateLimited,
    ValidationFailed,
)


@dataclass(frozen=True, slots=True)
class ProviderReason:
    """One row. `code` is set where the class's own code would say less."""

    error: type[NovitaError]
    code: str | None = None


def _rows(error: type[NovitaError], *words: str) -> dict[str, ProviderReason]:
    return {word: ProviderReason(error) for word in words}


def _own_codes(error: type[NovitaError], *words: str) -> dict[str, ProviderReason]:
    return {word: ProviderReason(error, word) for word in words}


REASONS: Mapping[str, ProviderReason] = {
    **_rows(InsufficientResource, "INSUFFICIENT_RESOURCE", "MIGRATE_INSUFFICIENT_RESOURCE"),
    # Of one product or region: another may have the driver, the billing mode or a node that works.
    **_own_codes(CandidateRefused, "CUDA_VERSION_INCOMPATIBLE"),
    **_rows(CandidateRefused, "UNSUPPORTED_BILLING_MODE", "CLUSTER_STATUS", "NODE_STATUS"),
    **_rows(InvalidStateChange, "INVALID_STATE_CHANGE", "CONFLICT"),
    **_rows(
        BalanceExhausted,
        "BALANCE_NOT_ENOUGH",
        "EXPIRED_OR_BALANCE_NOT_ENOUGH",
        "DE_BALANCE_NOT_ENOUGH",
        "NOT_ENOUGH_BALANCE",
        "BUDGET_NOT_ENOUGH",
        "NOT_ENOUGH_BUDGET",
        "MEMBER_BUDGET_NOT_ENOUGH",
    ),
    **_rows(
        AccountLimitReached,
        "CREATE_INSTANCE_LIMIT",
        "CREATE_GPU_NUM_LIMIT",
        "OPERATION_LIMIT",
        "IMAGE_PREWARM_NUM_LIMIT",
    ),
    **_rows(
        AuthFailed,
        "UNAUTHORIZED",
        "INVALID_API_KEY",
        "MISSING_API_KEY",
        "FORBIDDEN",
        "PERMISSION_DENIED",
        "NO_PERMISSION",
        "API_NOT_ALLOWED",
        "BANNED_USER",
        "USER_IS_LOCKED",
    ),
    **_rows(RateLimited, "RATE_LIMIT_EXCEEDED"),
    # The image named in the request, not the instance or template itself.
    **_own_codes(ValidationFailed, "IMAGE_NOT_FOUND", "IMAGE_URL_OR_AUTH_ERROR", "IMAGE_TOO_LARGE"),
    "IMAGE_AUTH_IN_USE": ProviderReason(ValidationFailed, "REGISTRY_AUTH_IN_USE"),
    "NETWORK_STORAGE_IN_USE": ProviderReason(ValidationFailed, "VOLUME_IN_USE"),
    "NETWORK_STORAGE_UNAVAILABLE": ProviderReason(ValidationFailed, "VOLUME_NOT_AVAILABLE"),
    "NETWORK_STORAGE_TOO_LARGE": ProviderReason(ValidationFailed, "INVALID_VOLUME"),
    "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT": ProviderReason(ValidationFailed, "VOLUMES_NOT_SUPPORTED"),
    **_own_codes(ValidationFailed, "PREPAID_INSTANCE_NOT_SUPPORT_RELEASE", "MIGRATION_JOB_NOT_BREAKABLE"),
    **_rows(
        ValidationFailed,
        "VALIDATOR_PARAM",
        "VALIDATOR",
        "REQUEST",
        "INVALID_COMMAND_PARAM",
        "DEPENDENT_RESOURCE_STATE",
        "CREATING_INSTANCE_NOT_SUPPORT_RENEWAL",
    ),
    **_rows(ProviderNotFound, "NOT_FOUNT", "NOT_FOUND", "RESOURCE_NOT_FOUND"),
}

# "not fount" is the provider's own spelling.
MISSING = re.compile(r"(not|n't)[ _](be[ _])?(foun[dt]|exist)", re.IGNORECASE)
NOUNS = re.compile(r"instance|template|network|storage|image|product|cluster|user|account|auth|key|job|task|node|page")
MONEY = re.compile(r"BALANCE|BUDGET")

# For reasons that are missing, unknown or as general as VALIDATOR: what the text says.
PROSE: tuple[tuple[re.Pattern[str], ProviderReason], ...] = (
    (re.compile(r"invalid state change", re.IGNORECASE), ProviderReason(InvalidStateChange)),
    (re.compile(r"insufficient resource", re.IGNORECASE), ProviderReason(InsufficientResource)),
    (
        re.compile(r"(balance|budget) (is )?not enough|(not enough|insufficient) (balance|budget)", re.IGNORECASE),
        ProviderReason(BalanceExhausted),
    ),
    # A product or region that was withdrawn after we read the catalog; the others may still be there.
    (
        re.compile(r"(product|cluster) (is )?not (found|sold|available)|not sold in this cluster", re.IGNORECASE),
        ProviderReason(CandidateRefused),
    ),
)


def find_reason(word: str, *, subject: str | None) -> ProviderReason | None:
    """The row for a reason. An unknown reason is judged by its parts; None if they say nothing.

    `subject` is what the call was about: TEMPLATE_NOT_FOUND in response to a call about an instance does not mean that
    the instance is gone.
    """
    known = REASONS.get(word)
    if known is not None:
        return known
    if MONEY.search(word):
        return ProviderReason(BalanceExhausted)
    if word.endswith("_LIMIT"):
        return ProviderReason(AccountLimitReached)
    if MISSING.search(word):
        return ProviderReason(ProviderNotFound if is_missing(word, subject) else ValidationFailed)
    return ProviderReason(ValidationFailed) if word.startswith("IMAGE_") else None


def is_missing(text: str, subject: str | None) -> bool:
    """Whether a text says that the subject of the call does not exist: the last thing named before "not found"."""
    found = MISSING.search(text)
    if found is None:
        return False
    named: list[str] = NOUNS.findall(text[: found.start()].casefold())
    return bool(named) and named[-1] == subject
