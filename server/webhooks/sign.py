"""Signatures as Standard Webhooks has them, which any of that project's libraries verify."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

PREFIX = "whsec_"


def headers(delivery_id: UUID, body: str, secrets: Sequence[bytes], *, at: datetime) -> dict[str, str]:
    """The id and the body are the same for every attempt; the time, and so the signature, is the attempt's own."""
    message_id = f"msg_{delivery_id.hex}"
    timestamp = str(int(at.timestamp()))
    signed = f"{message_id}.{timestamp}.{body}".encode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(secret, signed) for secret in secrets),
    }


def shown(secret: bytes) -> str:
    """A secret as receivers are given it."""
    return PREFIX + base64.b64encode(secret).decode()


def _signature(secret: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
