"""Responses as JSON; times are still datetime objects there."""

import json
from datetime import datetime
from typing import Any

import orjson


def encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # An error may repeat half a surrogate pair, which only escapes can express.
        return json.dumps(value, default=datetime.isoformat).encode()
