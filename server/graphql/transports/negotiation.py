"""Content negotiation by the Accept header."""

from functools import lru_cache

JSON = "application/json"
RESPONSE = "application/graphql-response+json"
STREAM = "text/event-stream"
HTML = "text/html"

# In order of preference between equals. `*/*` means JSON; without the header it is graphql-response+json, as the
# specification says.
_OFFERED = (STREAM, RESPONSE, JSON)
_ACCEPT_MAX = 1_000


def media_type(accept: str | None) -> str | None:
    """The media type the client prefers among ours; None when it accepts none."""
    if accept is None:
        return RESPONSE
    return _best(accept[:_ACCEPT_MAX])


def prefers_page(accept: str | None) -> bool:
    """Whether the client is a browser that prefers HTML to our media types."""
    if accept is None or HTML not in accept:
        return False
    accepted = _read(accept[:_ACCEPT_MAX])
    return accepted.get(HTML, 0.0) > max(accepted.get(each, 0.0) for each in _OFFERED)


@lru_cache(maxsize=256)
def _best(accept: str) -> str | None:
    accepted = _read(accept)
    anything = max(accepted.get("*/*", 0.0), accepted.get("application/*", 0.0))
    best, quality = None, 0.0
    for each in accepted:
        if each in _OFFERED and accepted[each] > quality:  # between equals, the first one named
            best, quality = each, accepted[each]
    if anything > quality and accepted.get(JSON, 1.0) > 0:
        return JSON
    return best


def _read(accept: str) -> dict[str, float]:
    accepted: dict[str, float] = {}
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if name:
            accepted.setdefault(name, quality)
    return accepted
