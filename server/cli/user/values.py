"""Options as values: durations, labels, ports, prices."""

import difflib
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import typer

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST = 3650 * UNITS["d"]  # of the schema's Duration


def duration(text: str) -> timedelta:
    """90s, 30m, 4h, 1d12h; a bare number is seconds."""
    if not re.fullmatch(r"\d+(\.\d+)?|(\d+(\.\d+)?[smhd])+", text):
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 30m, 4h or 1d")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = sum(float(number) * UNITS[unit or "s"] for number, unit in parts)
    if seconds > LONGEST:
        raise typer.BadParameter(f"{text!r} is too long; at most 3650d")
    return timedelta(seconds=seconds)


def time_of(text: str) -> datetime:
    """A time in ISO 8601; without a time zone, in the local one."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; write 2026-12-24T18:00") from None


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def pairs(texts: list[str] | None) -> dict[str, str] | None:
    return None if texts is None else dict(pair(text) for text in texts)


def port(text: str) -> dict[str, Any]:
    """80, 80/http or 22/tcp."""
    number, _, kind = text.partition("/")
    if not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is not a port; write 80 or 22/tcp")
    return {"port": int(number), "type": kind or "http"}


def price(text: str) -> Decimal:
    """Dollars, to a millionth."""
    try:
        given = Decimal(text.removeprefix("$"))
        if given == round(given, 6):
            return given
    except InvalidOperation:  # also of NaN, infinity and numbers with too many digits
        pass
    raise typer.BadParameter(f"{text!r} is not a price; write 0.35")


def word(text: str, option: str, enum: str) -> str:
    """A value of the schema's enum, in any case; another is refused with the nearest one."""
    from pilotlight_client import models

    given = text.upper()
    known = [str(each.value) for each in getattr(models, enum) if each.value != "OTHER"]  # it is refused as input
    if given in known:
        return given
    near = difflib.get_close_matches(given, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise typer.BadParameter(f"{option} has no value {text!r}; {hint}")


def since(text: str) -> datetime:
    """A time, or a length before now."""
    if text[:1].isdecimal():
        return time_of(text) if "-" in text else datetime.now(UTC) - duration(text)
    raise typer.BadParameter(f"{text!r} is neither a length nor a time; write 7d or 2026-12-24T18:00")


def shown_duration(given: timedelta) -> str:
    """The two largest units: 3d 4h, 12m 5s."""
    seconds = max(0, int(given.total_seconds()))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size or (unit == "s" and not parts):
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return " ".join(parts[:2])
