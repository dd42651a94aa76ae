"""Whose web pages may call us. Only browsers say where they are; whoever is no page is not asked."""

from urllib.parse import urlsplit

from schema.http.refusal import Refusal

METHODS = b"GET, POST"
# What clients of all kinds set; the last ones only make a browser ask first, which is why some always send them.
HEADERS = (
    b"authorization, content-type, last-event-id, x-request-id, traceparent, tracestate, graphql-require-preflight, "
    b"apollo-require-preflight, x-apollo-operation-name, apollographql-client-name, apollographql-client-version"
)
SHOWN = b"x-request-id, retry-after"
REMEMBERED = b"600"  # seconds for which a browser need not ask again


def is_welcome(origin: str | None, host: str | None, allowed_origins: tuple[str, ...]) -> bool:
    """Pages of our own and of the allowed origins; and whoever is no page."""
    if origin is None:
        return True
    return origin.rstrip("/") in allowed_origins or (host is not None and urlsplit(origin).netloc == host)


def check_origin(headers: dict[bytes, bytes], allowed_origins: tuple[str, ...]) -> None:
    """Raises Refusal for what a page elsewhere has made a browser send.

    A browser names the origin of everything that a script may read the answer of, or that changes anything. What comes
    without one from another site is a picture or a link, made to have us do something.
    """
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", b"none")
    if origin is None:
        is_elsewhere = site in (b"cross-site", b"same-site")
    else:
        host = headers.get(b"host")
        told = None if host is None else host.decode("latin-1")
        is_elsewhere = not is_welcome(origin.decode("latin-1"), told, allowed_origins)
    if is_elsewhere:
        raise Refusal(403, "Pages of this origin may not call here; see ALLOWED_ORIGINS.", "FORBIDDEN_ORIGIN")


def shared_with(headers: dict[bytes, bytes], allowed_origins: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """The headers that let a page of an allowed origin read the answer."""
    if not allowed_origins:
        return []
    origin = headers.get(b"origin")
    if origin is None or origin.decode("latin-1").rstrip("/") not in allowed_origins:
        return [(b"vary", b"origin")]
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", SHOWN),
        (b"vary", b"origin"),
    ]


def preflight(headers: dict[bytes, bytes], allowed_origins: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """What a browser is told that asks first; raises Refusal."""
    check_origin(headers, allowed_origins)
    return [
        *shared_with(headers, allowed_origins),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", HEADERS),
        (b"access-control-max-age", REMEMBERED),
    ]
