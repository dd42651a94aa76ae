"""Which kind of answer a client wants, out of its Accept header."""

from functools import lru_cache

JSON = "application/json"
RESPONSE = "application/graphql-response+json"
STREAM = "text/event-stream"
HTML = "text/html"

# In the order in which we choose between equals. `*/*` means JSON, as it always has; without any header it is the newer
# one, as the specification has it.
_OFFERED = (STREAM, RESPONSE, JSON)
_LONGEST = 1_000


def media_type(accept: str | None) -> str | None:
    """The one of ours that the client likes best; None when it can use none."""
    if accept is None:
        return RESPONSE
    return _best(accept[:_LONGEST])


def prefers_page(accept: str | None) -> bool:
    """A browser on its way to a page: it names HTML, and likes it better than what we have for programs."""
    if accept is None or HTML not in accept:
        return False
    wanted = _read(accept[:_LONGEST])
    return wanted.get(HTML, 0.0) > max(wanted.get(each, 0.0) for each in _OFFERED)


@lru_cache(maxsize=256)
def _best(accept: str) -> str | None:
    wanted = _read(accept)
    anything = max(wanted.get("*/*", 0.0), wanted.get("application/*", 0.0))
    best, liking = None, 0.0
    for each in wanted:
        if each in _OFFERED and wanted[each] > liking:  # of equals, the one that is named first
            best, liking = each, wanted[each]
    if anything > liking and wanted.get(JSON, 1.0) > 0:
        return JSON
    return best


def _read(accept: str) -> dict[str, float]:
    wanted: dict[str, float] = {}
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        liking = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    liking = float(parameter[2:])
                except ValueError:
                    liking = 0.0
        if name:
            wanted.setdefault(name, liking)
    return wanted
