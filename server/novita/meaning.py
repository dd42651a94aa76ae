"""What an answer that is not a success means, as one of our errors.

The stable word is `reason`, then comes the prose of `message`, then whatever text there is; `code` only repeats the
HTTP status. The words are those the provider's own console knows.
"""

import re
from collections.abc import Mapping
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from typing import cast

import orjson
from pydantic import SecretStr

from server.clock import now
from server.errors import (
    AuthFailed,
    BalanceExhausted,
    InsufficientResource,
    InvalidStateChange,
    NovitaError,
    ProviderError,
    ProviderNotFound,
    ProviderTimeout,
    RateLimited,
    ValidationFailed,
)

# A provider that asks for an hour gets asked again after this; the job queue decides about longer waits.
LONGEST_RETRY_AFTER = timedelta(minutes=5)
LONGEST_MESSAGE = 500  # characters: enough to understand, short enough for a log line and a column

REASONS: Mapping[str, type[NovitaError]] = {
    "INSUFFICIENT_RESOURCE": InsufficientResource,
    "MIGRATE_INSUFFICIENT_RESOURCE": InsufficientResource,
    "CUDA_VERSION_INCOMPATIBLE": InsufficientResource,  # another node or region may have the right driver
    "INVALID_STATE_CHANGE": InvalidStateChange,
    "CONFLICT": InvalidStateChange,
    "CREATE_INSTANCE_LIMIT": BalanceExhausted,
    "CREATE_GPU_NUM_LIMIT": BalanceExhausted,
    "UNAUTHORIZED": AuthFailed,
    "INVALID_API_KEY": AuthFailed,
    "MISSING_API_KEY": AuthFailed,
    "FORBIDDEN": AuthFailed,
    "PERMISSION_DENIED": AuthFailed,
    "NO_PERMISSION": AuthFailed,
    "API_NOT_ALLOWED": AuthFailed,
    "BANNED_USER": AuthFailed,
    "USER_IS_LOCKED": AuthFailed,
    "RATE_LIMIT_EXCEEDED": RateLimited,
    # A field of the request names an image that is not there; the instance or template itself is not what is missing.
    "IMAGE_NOT_FOUND": ValidationFailed,
}

STATUSES: Mapping[int, type[NovitaError]] = {
    401: AuthFailed,
    402: BalanceExhausted,
    403: AuthFailed,
    404: ProviderNotFound,
    408: ProviderTimeout,
    409: InvalidStateChange,
    410: ProviderNotFound,
    429: RateLimited,
    499: ProviderTimeout,  # a gateway's way to say that it gave up waiting; what was asked may have happened
}

# "not fount" is the provider's own spelling.
NOT_FOUND = re.compile(r"not[ _]foun[dt]", re.IGNORECASE)
MONEY = re.compile(r"BALANCE|BUDGET")
PROSE: tuple[tuple[re.Pattern[str], type[NovitaError]], ...] = (
    (re.compile(r"invalid state change", re.IGNORECASE), InvalidStateChange),
    (re.compile(r"insufficient resource", re.IGNORECASE), InsufficientResource),
    (
        re.compile(r"(balance|budget) (is )?not enough|(not enough|insufficient) (balance|budget)", re.IGNORECASE),
        BalanceExhausted,
    ),
    (NOT_FOUND, ProviderNotFound),
)
SPEAKING_STATUSES = (400, 404, 409, 422)  # where the prose knows more than the number


def error_of(
    status: int, body: bytes, *, retry_after: str | None = None, secrets: tuple[SecretStr, ...] = ()
) -> NovitaError:
    """The error that an answer with this status stands for; never raises, whatever the body holds."""
    reason, text = _words(body)
    kind = _kind(status, reason, text)
    message = clean(f"{text or reason or 'no explanation'} (HTTP {status})", secrets)
    reason = clean(reason, secrets) if reason else None
    if kind is RateLimited:
        return RateLimited(message, retry_after=read_retry_after(retry_after), status=status, reason=reason)
    return kind(message, status=status, reason=reason)


def _kind(status: int, reason: str | None, text: str) -> type[NovitaError]:
    if status == 429:
        return RateLimited
    if status >= 500 or status < 400:
        return ProviderError
    if reason:
        if reason in REASONS:
            return REASONS[reason]
        if MONEY.search(reason):
            return BalanceExhausted
        if NOT_FOUND.search(reason):
            return ProviderNotFound
        if reason.startswith("IMAGE_"):
            return ValidationFailed
    if status in SPEAKING_STATUSES:
        for pattern, kind in PROSE:
            if pattern.search(text):
                return kind
    return STATUSES.get(status, ValidationFailed)


def _words(body: bytes) -> tuple[str | None, str]:
    """The reason and the prose of an error body, in any of the three forms that clients of this API look for."""
    try:
        raw: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None, _plain(body)
    if isinstance(raw, str):
        return None, raw
    if not isinstance(raw, dict):
        return None, ""
    fields = cast("dict[str, object]", raw)
    inner: object = fields.get("error")
    nested = cast("dict[str, object]", inner) if isinstance(inner, dict) else {}
    reason = _first_text(fields.get("reason"), nested.get("reason"), nested.get("code"))
    text = _first_text(
        fields.get("message"), nested.get("message"), fields.get("error"), fields.get("details"), fields.get("msg")
    )
    return (reason.upper() if reason else None), text or ""


def _first_text(*candidates: object) -> str | None:
    return next((each for each in candidates if isinstance(each, str) and each), None)


def _plain(body: bytes) -> str:
    text = body[:4096].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return "an HTML page"
    # Half an answer may be half an instance, with the password of its SSH.
    return "JSON that ends early" if text.startswith(("{", "[")) else text


def clean(text: str, secrets: tuple[SecretStr, ...]) -> str:
    """One line of bounded length without the secrets that the provider may have echoed."""
    for secret in secrets:
        if clear := secret.get_secret_value():
            text = re.sub(re.escape(clear), "***", text, flags=re.IGNORECASE)
    text = " ".join("".join(each if each.isprintable() else " " for each in text[: LONGEST_MESSAGE * 4]).split())
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"


def read_retry_after(header: str | None) -> timedelta | None:
    """Seconds or an HTTP date; None for anything else. Never negative, never longer than we care to wait."""
    if header is None:
        return None
    header = header.strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", header, re.ASCII):
        wait = timedelta(seconds=float(header))
    else:
        try:
            moment = parsedate_to_datetime(header)
            wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now()
        except (ValueError, OverflowError, TypeError, IndexError):
            return None
    return min(max(wait, timedelta(0)), LONGEST_RETRY_AFTER)
