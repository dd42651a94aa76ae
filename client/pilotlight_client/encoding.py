"""Python values as the variables of a request."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast

from pilotlight_client.values import MICROS, Money

KEY_VALUES = {"env", "labels"}  # lists of names and values, which may be given as a mapping
LONG_NAMES = {"product": "productName"}


def encode_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an input by their names in the schema, without those that are None."""
    return {camel(name): _encode(name, value) for name, value in fields.items() if value is not None}


def camel(name: str) -> str:
    name = name.removesuffix("_")  # of a keyword, such as `from_`
    return LONG_NAMES.get(name) or re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def _encode(name: str, value: object) -> Any:
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        if name in KEY_VALUES:
            return [{"key": key, "value": each} for key, each in given.items()]
        return encode_fields(given)
    if isinstance(value, (Money, Decimal)):
        return {"amountMicros": value.amount_micros if isinstance(value, Money) else _micros(value)}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name}: the time {value.isoformat()} has no time zone")
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_encode(name + "_item", each) for each in cast("Sequence[object]", value)]
    return value


def _micros(amount: Decimal) -> int:
    micros = amount * MICROS
    if micros != micros.to_integral_value():
        raise ValueError(f"{amount} is finer than a millionth")
    return int(micros)
