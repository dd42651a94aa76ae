"""A request's query and body, and the provider's error responses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import parse_qs

import orjson

JsonObject = dict[str, object]

EMPTY = b"{}"


class ProviderRefusal(Exception):
    """An error response of the provider; `reason` is the machine-readable code."""

    def __init__(self, status: int, reason: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})

    def body(self) -> bytes:
        return orjson.dumps(
            {"code": self.status, "reason": self.reason, "message": self.message, "metadata": self.metadata}
        )


def bad_param(message: str, field_name: str = "") -> ProviderRefusal:
    return ProviderRefusal(400, "VALIDATOR_PARAM", message, {"field": field_name} if field_name else None)


class InvalidState(ProviderRefusal):
    """Only the message of this refusal is known; status and reason are a matter of dialect."""

    def __init__(self) -> None:
        super().__init__(400, "", "invalid state change")


def not_found(what: str) -> ProviderRefusal:
    """The provider really spells the reason like this."""
    return ProviderRefusal(404, "NOT_FOUNT", f"{what} not found")


def invalid_state() -> ProviderRefusal:
    return InvalidState()


def no_stock() -> ProviderRefusal:
    return ProviderRefusal(400, "INSUFFICIENT_RESOURCE", "insufficient resource")


@dataclass(slots=True)
class ApiRequest:
    """One request, after authentication."""

    route: str
    raw_query: bytes = b""
    raw_body: bytes = b""
    key: str = ""
    _query: dict[str, list[str]] | None = field(default=None, repr=False)

    def query_all(self, name: str) -> list[str]:
        if self._query is None:
            self._query = parse_qs(self.raw_query.decode("latin-1"), keep_blank_values=True)
        return self._query.get(name, [])

    def query_set(self, name: str) -> set[str]:
        """The values of a parameter that some clients repeat and others join with commas."""
        return {part for value in self.query_all(name) for part in value.split(",") if part}

    def query(self, name: str) -> str:
        values = self.query_all(name)
        return values[-1] if values else ""

    def query_int(self, name: str, default: int = 0, *, least: int = 0, most: int = 2**53) -> int:
        text = self.query(name)
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            raise bad_param(f"{name} must be an integer", name) from None
        if not least <= number <= most:
            raise bad_param(f"{name} must be between {least} and {most}", name)
        return number

    def page_number(self, name: str = "pageNum") -> int | None:
        return self.query_int(name) if self.query(name) else None

    def page_size(self) -> int | None:
        return self.query_int("pageSize") if self.query("pageSize") else None

    def body(self) -> JsonObject:
        if not self.raw_body:
            return {}
        try:
            parsed: object = orjson.loads(self.raw_body)
        except orjson.JSONDecodeError:
            raise ProviderRefusal(400, "REQUEST", "the body is not valid JSON") from None
        if not isinstance(parsed, dict):
            raise ProviderRefusal(400, "REQUEST", "the body must be a JSON object")
        return cast(JsonObject, parsed)
