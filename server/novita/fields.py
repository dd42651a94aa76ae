"""One JSON object of the provider's, read field by field without trusting any of them.

The rule everywhere: a scalar that is missing, null, "" or of a type that makes no sense is unset; a list that is null
is empty; an identity that is missing, or a list that holds something else than it should, makes the whole answer
unreadable. An item is never skipped in silence: an instance missing from a list looks like one that is gone.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import cast

import orjson

# A JSON number written as a string; the length keeps int() away from strings made to be slow.
INTEGER = re.compile(r"[+-]?[0-9]{1,19}(?:\.0*)?", re.ASCII)
BIGGEST = 2**63 - 1  # what the provider's own 64-bit integers, and our columns, can hold
NONE = {"": None, "-1": -1}  # the two ways to say "none" that are not plain digits
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END_OF_TIME = 250_000_000_000  # the year 9892; what comes after is no time, and past 9999 no datetime


class Unreadable(Exception):
    """The answer is not what the contract says; the message names the field and never quotes a value."""


def parse(body: bytes) -> "Fields":
    """The object that a body holds. An empty body is an empty object: some calls answer that way."""
    try:
        raw: object = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        raw = None if body.strip() else {}
    if raw is None:
        raise Unreadable("it is not JSON")  # not from the library's error, which carries the whole text
    if b"\\u0000" in body:  # PostgreSQL can't store NUL, and no name needs one
        raw = _without_nul(raw)
    if not isinstance(raw, dict):
        raise Unreadable("it is not an object")
    return Fields(cast("dict[str, object]", raw))


class Fields:
    """A JSON object from an answer."""

    __slots__ = ("_raw",)

    def __init__(self, raw: dict[str, object]) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return f"<Fields {sorted(self._raw)}>"  # names only: values may be passwords

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def identity(self, *names: str) -> str:
        """The first of these that is set; ids travel as strings or as numbers."""
        for name in names:
            if found := self.text(name):
                return found
        raise Unreadable(f"it has no {names[0]}")

    def text(self, name: str) -> str:
        """A string, "" when unset."""
        raw = self._raw.get(name)
        if type(raw) is str:
            return raw
        return str(raw) if type(raw) is int else ""

    def maybe(self, name: str) -> str | None:
        """A string, None when unset."""
        raw = self._raw.get(name)
        if type(raw) is str:
            return raw or None
        return str(raw) if type(raw) is int else None

    def integer(self, name: str) -> int | None:
        """A number, or a string that holds one; None when unset."""
        raw = self._raw.get(name)
        # Nearly all are plain digits, and an instance is read thousands of times an hour.
        if type(raw) is str and raw.isdecimal() and len(raw) < 19 and raw.isascii():
            return int(raw)
        return _integer(raw)

    def money(self, name: str) -> int | None:
        """An amount in 1/100000 USD; a negative one makes no sense and is unset."""
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
        """Unix seconds; 0 and -1 are how the provider says "none"."""
        seconds = _integer(self._raw.get(name))
        if seconds is None or not 0 < seconds < END_OF_TIME:
            return None
        return EPOCH + timedelta(seconds=seconds)

    def within(self, name: str) -> "Fields":
        """An object inside; an empty one when unset."""
        raw = self._raw.get(name)
        return Fields(cast("dict[str, object]", raw)) if type(raw) is dict else UNSET

    def objects(self, name: str) -> list["Fields"]:
        """A list of objects; a lone object counts as a list of one, because the contract's sources disagree on some."""
        raw = self._raw.get(name)
        if type(raw) is list:
            found: list[Fields] = []
            for item in cast("list[object]", raw):
                if type(item) is not dict:
                    raise Unreadable(f"{name} holds something else than objects")
                found.append(Fields(cast("dict[str, object]", item)))
            return found
        if raw is None or raw == "":
            return []
        if type(raw) is dict:
            return [Fields(cast("dict[str, object]", raw))]
        raise Unreadable(f"{name} is not a list")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        raw = self._raw.get(name)
        if raw is None or raw == "":
            return ()
        if not isinstance(raw, list):
            raise Unreadable(f"{name} is not a list")
        items = cast("list[object]", raw)
        if not all(isinstance(item, str) for item in items):
            raise Unreadable(f"{name} holds something else than strings")
        return tuple(cast("list[str]", items))

    def integers(self, name: str) -> list[int]:
        """A list of numbers, which early documents sent as strings."""
        raw = self._raw.get(name)
        if raw is None or raw == "":
            return []
        if not isinstance(raw, list):
            raise Unreadable(f"{name} is not a list")
        numbers = [_integer(item) for item in cast("list[object]", raw)]
        if None in numbers:
            raise Unreadable(f"{name} holds something else than numbers")
        return cast("list[int]", numbers)

    def listed(self, *names: str) -> list["Fields"]:
        """The items of a list answer, under the first of these keys that is there.

        The key has to be there: reading `{}` as an empty list would make every instance look gone. Only an answer
        that counts zero items may leave it out, as some JSON encoders do with empty lists.
        """
        for name in names:
            if name in self._raw:
                return self.objects(name)
        if self.integer("total") == 0:
            return []
        raise Unreadable(f"it has no {names[0]}")


UNSET = Fields({})


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
    return number if -BIGGEST <= number <= BIGGEST else None
