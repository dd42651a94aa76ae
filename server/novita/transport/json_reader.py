"""Reads a JSON object of the provider field by field and trusts none of them.

The rules: a scalar that is missing, null, "" or of the wrong type is unset; a null list is empty; a missing id, or a
list with items of the wrong type, makes the whole response invalid. Items are never skipped: an instance missing from
a list would look deleted.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import cast

import orjson

# A JSON number written as a string; the length limit avoids slow int() on hostile strings.
INTEGER = re.compile(r"[+-]?[0-9]{1,19}(?:\.0*)?", re.ASCII)
INTEGER_MAX = 2**63 - 1  # limit of the provider's 64-bit integers and of our columns
NONE = {"": None, "-1": -1}  # the two ways to say "none" that are not plain digits
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_MAX = 250_000_000_000  # the year 9892; datetime ends with 9999


class InvalidResponse(Exception):
    """The response breaks the contract; the message names the field and never quotes a value."""


def parse(body: bytes) -> "JsonReader":
    """The object in a body. An empty body counts as an empty object: some calls return one."""
    try:
        raw: object = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        raw = None if body.strip() else {}
    if raw is None:
        raise InvalidResponse("it is not JSON")  # not chained: orjson's error holds the whole text
    if b"\\u0000" in body:  # PostgreSQL can't store NUL, and no name needs one
        raw = _without_nul(raw)
    if not isinstance(raw, dict):
        raise InvalidResponse("it is not an object")
    return JsonReader(cast("dict[str, object]", raw))


class JsonReader:
    """A JSON object from a response."""

    __slots__ = ("_raw",)

    def __init__(self, raw: dict[str, object]) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return f"<Fields {sorted(self._raw)}>"  # names only: values may be passwords

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def required_id(self, *names: str) -> str:
        """The first of these that is set; ids are strings or numbers."""
        for name in names:
            if found := self.text(name):
                return found
        raise InvalidResponse(f"it has no {names[0]}")

    def text(self, name: str) -> str:
        """A string, "" when unset."""
        raw = self._raw.get(name)
        if type(raw) is str:
            return raw
        return str(raw) if type(raw) is int else ""

    def optional_text(self, name: str) -> str | None:
        """A string, None when unset."""
        raw = self._raw.get(name)
        if type(raw) is str:
            return raw or None
        return str(raw) if type(raw) is int else None

    def integer(self, name: str) -> int | None:
        """A number, or a string that holds one; None when unset."""
        raw = self._raw.get(name)
        # Fast path: nearly all are plain digits, and instances are read thousands of times an hour.
        if type(raw) is str and raw.isdecimal() and len(raw) < 19 and raw.isascii():
            return int(raw)
        return _integer(raw)

    def money(self, name: str) -> int | None:
        """An amount in 1/100000 USD; a negative one is unset."""
        amount = self.integer(name)
        return None if amount is None or amount < 0 else amount

    def number(self, name: str) -> float | None:
        """A measurement, which may have decimals."""
        raw = self._raw.get(name)
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            return None
        try:
            number = float(raw)
        except (ValueError, OverflowError):
            return None
        return number if -1e300 < number < 1e300 else None  # neither infinite nor NaN

    def flag(self, name: str, default: bool = False) -> bool:
        raw = self._raw.get(name)
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        return default

    def time(self, name: str) -> datetime | None:
        """Unix seconds; the provider's 0 and -1 mean none."""
        seconds = _integer(self._raw.get(name))
        if seconds is None or not 0 < seconds < TIMESTAMP_MAX:
            return None
        return EPOCH + timedelta(seconds=seconds)

    def nested(self, name: str) -> "JsonReader":
        """A nested object; an empty one when unset."""
        raw = self._raw.get(name)
        return JsonReader(cast("dict[str, object]", raw)) if type(raw) is dict else EMPTY

    def objects(self, name: str) -> list["JsonReader"]:
        """A list of objects; a single object counts as a list of one, because the API's documents disagree on some."""
        raw = self._raw.get(name)
        if type(raw) is list:
            found: list[JsonReader] = []
            for item in cast("list[object]", raw):
                if type(item) is not dict:
                    raise InvalidResponse(f"{name} has items that are not objects")
                found.append(JsonReader(cast("dict[str, object]", item)))
            return found
        if raw is None or raw == "":
            return []
        if type(raw) is dict:
            return [JsonReader(cast("dict[str, object]", raw))]
        raise InvalidResponse(f"{name} is not a list")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        raw = self._raw.get(name)
        if raw is None or raw == "":
            return ()
        if not isinstance(raw, list):
            raise InvalidResponse(f"{name} is not a list")
        items = cast("list[object]", raw)
        if not all(isinstance(item, str) for item in items):
            raise InvalidResponse(f"{name} has items that are not strings")
        return tuple(cast("list[str]", items))

    def integers(self, name: str) -> list[int]:
        """A list of numbers, which may be strings."""
        raw = self._raw.get(name)
        if raw is None or raw == "":
            return []
        if not isinstance(raw, list):
            raise InvalidResponse(f"{name} is not a list")
        numbers = [_integer(item) for item in cast("list[object]", raw)]
        if None in numbers:
            raise InvalidResponse(f"{name} has items that are not numbers")
        return cast("list[int]", numbers)

    def items(self, *names: str) -> list["JsonReader"]:
        """The items of a list response, under the first of these keys that is present.

        The key is required: reading `{}` as an empty list would make every instance look deleted. Only a response with
        a total of 0 may omit it, as some JSON encoders do with empty lists.
        """
        for name in names:
            if name in self._raw:
                return self.objects(name)
        if self.integer("total") == 0:
            return []
        raise InvalidResponse(f"it has no {names[0]}")


EMPTY = JsonReader({})


def _without_nul(raw: object) -> object:
    if isinstance(raw, str):
        return raw.replace("\x00", "")
    if isinstance(raw, list):
        return [_without_nul(each) for each in cast("list[object]", raw)]
    if isinstance(raw, dict):
        return {name: _without_nul(each) for name, each in cast("dict[str, object]", raw).items()}
    return raw


def _integer(raw: object) -> int | None:
    if type(raw) is str:
        if raw.isdecimal() and len(raw) < 19 and raw.isascii():
            return int(raw)
        if raw in NONE or not INTEGER.fullmatch(raw):
            return NONE.get(raw)
        number = int(raw.partition(".")[0])
    elif type(raw) is int:
        number = raw
    elif type(raw) is float and raw.is_integer():
        number = int(raw)
    else:
        return None
    return number if -INTEGER_MAX <= number <= INTEGER_MAX else None
