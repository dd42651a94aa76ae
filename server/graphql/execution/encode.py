"""Responses as JSON."""

import json
from typing import Any

import orjson


def encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()  # an error may repeat half a surrogate pair, which only escapes can express
