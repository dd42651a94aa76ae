"""Parts of answers that are the same each time: kept as they are, and as the bytes that they become."""

from typing import Any

import orjson

from schema.live.results import encoded

MOST_SHOWN = 4  # selections, of one version of a row or of one page


class Known(dict[str, Any]):
    """What is shown of something that does not change. It is in many answers at once, so nobody may change it."""

    __slots__ = ("fragment",)

    fragment: orjson.Fragment | None


class KnownList(list[Any]):
    """The same of many."""

    __slots__ = ("fragment",)

    fragment: orjson.Fragment | None


def keep(shown: dict[object, Any], selection: object, made: dict[str, Any] | list[Any]) -> Known | KnownList:
    """To be found under the selection from now on."""
    known = KnownList(made) if isinstance(made, list) else Known(made)
    known.fragment = None
    if len(shown) >= MOST_SHOWN:
        shown.clear()
    shown[selection] = known
    return known


def written(body: dict[str, Any]) -> bytes:
    """An answer as JSON: the same bytes as if nothing in it had been known before."""
    try:
        return orjson.dumps(body, default=_fragment, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:  # something else that is a subclass of what JSON has, or can't be written so at all
        return encoded(body)


def _fragment(value: Any) -> orjson.Fragment:
    if value.__class__ is not Known and value.__class__ is not KnownList:
        raise TypeError
    if value.fragment is None:
        value.fragment = orjson.Fragment(orjson.dumps(value))
    return value.fragment
