"""Types of settings: durations, lists and addresses, each with its check."""

import re
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class SettingsGroup(BaseSettings):
    """Base of the groups. An empty variable counts as not set."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore", validate_default=True)


def _duration(value: Any) -> Any:
    """Seconds, or a number with a unit (ms, s, m, h, d): 30, 30s, 10m, 24h."""
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", str(value))
    if match is None:
        raise ValueError("must be a duration such as 30, 30s, 10m or 24h")
    return timedelta(seconds=float(match[1]) * UNITS[match[2] or ""])


def format_duration(value: timedelta) -> str:
    """As people write it, and as it can be written: 30d, 90s, 100ms."""
    milliseconds = round(value.total_seconds() * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    seconds = milliseconds // 1000
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        # Up to a minute in seconds: 60s reads as a count, 1m as a rounding.
        if seconds > 60 and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be positive")
    return value


def _split_words(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def _networks(values: Any) -> Any:
    """Addresses are networks of one."""
    try:
        return tuple(ip_network(value) for value in _split_words(values))
    except (TypeError, ValueError):
        raise ValueError("must be addresses or networks such as 10.0.0.5 or 10.0.0.0/8, separated by commas") from None


def _http_origin(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https address")
    if parts.path.rstrip("/") or parts.query or parts.fragment:
        raise ValueError("must be the host only, without a path")
    return value.rstrip("/")


def _http_origins(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_http_origin(value) for value in values)


def _database_url(value: SecretStr) -> SecretStr:
    # Kept as a string, because pydantic's own type refuses addresses of unix sockets. Of several hosts, separated by
    # commas, only the first is checked here; the driver checks the rest.
    one_host = re.sub(r",[^/?@]*(?=[/?]|$)", "", value.get_secret_value(), count=1)
    try:
        url = make_url(one_host)
    except (ArgumentError, ValueError):
        raise ValueError("must look like postgresql://user:password@host:5432/name") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise ValueError("must start with postgresql://")
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_positive)]
DurationOrZero = Annotated[timedelta, BeforeValidator(_duration)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_words)]  # separated by commas
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_networks)]
HttpOrigin = Annotated[str, AfterValidator(_http_origin)]
HttpOrigins = Annotated[Words, AfterValidator(_http_origins)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(_database_url)]
