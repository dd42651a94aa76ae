"""Maps the provider's error responses to NovitaError classes.

`reason` is the most stable field, then the text of `message`, then any other text; `code` only repeats the HTTP status.
reasons.py has the table of reasons.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import orjson
from pydantic import SecretStr

from server.clock import parse_retry_after
from server.errors import (
    AccountLimitReached,
    AuthFailed,
    InvalidStateChange,
    NovitaError,
    PaymentRequired,
    ProviderError,
    ProviderNotFound,
    ProviderTimeout,
    RateLimited,
    ValidationFailed,
)
from server.novita.transport.reasons import PROSE, ProviderReason, find_reason, is_missing

# Longer waits are the job queue's decision.
RETRY_AFTER_MAX = timedelta(minutes=5)
MESSAGE_MAX = 500  # characters: fits a log line and a column

STATUSES: Mapping[int, type[NovitaError]] = {
    401: AuthFailed,
    403: AuthFailed,
    404: ProviderNotFound,
    408: ProviderTimeout,
    409: InvalidStateChange,
    410: ProviderNotFound,
    429: RateLimited,
    499: ProviderTimeout,  # a gateway stopped waiting; the request may have been carried out
}

STATUSES_WITH_PROSE = (400, 404, 409, 422)  # where the text says more than the status


def error_from_response(
    status: int,
    body: bytes,
    *,
    retry_after: str | None = None,
    secrets: tuple[SecretStr, ...] = (),
    subject: str | None = None,
) -> NovitaError:
    """The error for a response with this status; never raises, whatever the body holds.

    `subject` is what the call was about, such as "instance" or "template": only a text that says that the subject was
    not found means that it does not exist.
    """
    explanation = _read(body)
    found = _find(status, explanation, subject)
    text = explanation.text or explanation.reason or "no explanation"
    if found.error is AccountLimitReached and explanation.limits:
        text = f"{text}: {explanation.limits}"
    message = redact(f"{text} (HTTP {status})", secrets)
    reason = redact(explanation.reason, secrets) if explanation.reason else None
    if found.error is RateLimited:
        wait = parse_retry_after(retry_after, limit=RETRY_AFTER_MAX)
        return RateLimited(message, retry_after=wait, status=status, reason=reason)
    error = found.error(message, status=status, reason=reason)
    error.code = found.code or error.code
    if status == 404 and not explanation.is_json:
        # From a gateway, which may not even have reached the provider: nothing is known about the call.
        error.is_certain_refusal = False
    return error


def _find(status: int, explanation: "Explanation", subject: str | None) -> ProviderReason:
    if status == 429:
        return ProviderReason(RateLimited)
    if status == 402:
        return ProviderReason(PaymentRequired)
    if status >= 500 or status < 400:
        return ProviderReason(ProviderError)
    reason, text = explanation.reason, explanation.text
    found = find_reason(reason, subject=subject) if reason else None
    if found is not None and found != ProviderReason(ValidationFailed):
        return found
    if status in STATUSES_WITH_PROSE:
        for pattern, meaning in PROSE:
            if pattern.search(text):
                return meaning
        if is_missing(text, subject):
            return ProviderReason(ProviderNotFound)
    return found or ProviderReason(STATUSES.get(status, ValidationFailed))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reason and text of an error response. A gateway's page is not JSON. `limits` has the values of `metadata`."""

    reason: str | None
    text: str
    is_json: bool
    limits: str = ""


def _read(body: bytes) -> Explanation:
    """In any of the three forms that clients of this API look for."""
    try:
        raw: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Explanation(None, _plain(body), is_json=False)
    if not isinstance(raw, dict):
        return Explanation(None, raw if isinstance(raw, str) else "", is_json=False)
    fields = cast("dict[str, object]", raw)
    inner: object = fields.get("error")
    nested = cast("dict[str, object]", inner) if isinstance(inner, dict) else {}
    reason = _first_text(fields.get("reason"), nested.get("reason"), nested.get("code"))
    text = _first_text(
        fields.get("message"), nested.get("message"), fields.get("error"), fields.get("details"), fields.get("msg")
    )
    metadata: object = fields.get("metadata")
    values = cast("dict[str, object]", metadata) if isinstance(metadata, dict) else {}
    limits = ", ".join(f"{name} {value}" for name, value in values.items() if isinstance(value, str | int))
    return Explanation(reason.upper() if reason else None, text or "", is_json=True, limits=limits)


def _first_text(*candidates: object) -> str | None:
    return next((each for each in candidates if isinstance(each, str) and each), None)


def _plain(body: bytes) -> str:
    text = body[:4096].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return "an HTML page"
    # Not quoted: a truncated response may hold an instance with its SSH password.
    return "JSON that ends early" if text.startswith(("{", "[")) else text


def redact(text: str, secrets: tuple[SecretStr, ...]) -> str:
    """One line of at most MESSAGE_MAX characters without the secrets that the provider may have echoed."""
    for secret in secrets:
        if clear := secret.get_secret_value():
            text = re.sub(re.escape(clear), "***", text, flags=re.IGNORECASE)
    text = " ".join("".join(each if each.isprintable() else " " for each in text[: MESSAGE_MAX * 4]).split())
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"
