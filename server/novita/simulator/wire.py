"""What a call brings and what goes back: queries, bodies, refusals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import parse_qs

import orjson

JsonObject = dict[str, object]

EMPTY = b"{}"


class Refusal(Exception):
    """The provider's error answer; `reason` is the word that programs read."""

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


def bad_param(message: str, field_name: str = "") -> Refusal:
    return Refusal(400, "VALIDATOR_PARAM", message, {"field": field_name} if field_name else None)


def not_found(what: str) -> Refusal:
    """A missing thing; the provider spells the reason like this."""
    return Refusal(404, "NOT_FOUNT", f"{what} not found")


def invalid_state() -> Refusal:
    """Only the message of this refusal is known; callers must not lean on a word that nobody has seen."""
    return Refusal(400, "", "invalid state change")


def no_stock() -> Refusal:
    return Refusal(400, "INSUFFICIENT_RESOURCE", "insufficient resource")


@dataclass(slots=True)
class Call:
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

    def page(self, number_name: str = "pageNum") -> tuple[int, int]:
        """(first row, page size); page 0 is the first page just like page 1."""
        size = self.query_int("pageSize", 10, least=0, most=1000) or 10
        number = max(1, self.query_int(number_name, 1))
        return (number - 1) * size, size

    def body(self) -> JsonObject:
        if not self.raw_body:
            return {}
        try:
            parsed: object = orjson.loads(self.raw_body)
        except orjson.JSONDecodeError:
            raise Refusal(400, "REQUEST", "the body is not valid JSON") from None
        if not isinstance(parsed, dict):
            raise Refusal(400, "REQUEST", "the body must be a JSON object")
        return cast(JsonObject, parsed)
