"""CORS and CSRF: which web pages may call the API. Clients other than browsers send no Origin and are not limited."""

from server.graphql.transports.body import HttpError

METHODS = b"GET, POST"
# Set by GraphQL clients; some always send the last ones, to force a preflight.
ALLOWED_HEADERS = (
    b"authorization, content-type, last-event-id, x-request-id, traceparent, tracestate, graphql-require-preflight, "
    b"apollo-require-preflight, x-apollo-operation-name, apollographql-client-name, apollographql-client-version"
)
EXPOSED_HEADERS = b"x-request-id, retry-after"
PREFLIGHT_MAX_AGE = b"600"  # seconds


def is_allowed_origin(origin: str | None, host: str | None, allowed_origins: tuple[str, ...]) -> bool:
    """Our own pages, pages of allowed origins, and requests without an Origin."""
    if origin is None:
        return True
    origin = origin.rstrip("/")
    # Compared as text: browsers write an origin in one way only, and what is no URL is no origin of ours.
    return origin in allowed_origins or (host is not None and origin in (f"http://{host}", f"https://{host}"))


def check_origin(headers: dict[bytes, bytes], allowed_origins: tuple[str, ...]) -> None:
    """Raises HttpError for a request that a page of another origin made a browser send.

    Browsers send Origin whenever a script may read the response, and with every POST. A cross-site request without it
    comes from an image or a link.
    """
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", b"none")
    if origin is None:
        is_elsewhere = site in (b"cross-site", b"same-site")
    else:
        host = headers.get(b"host")
        own_host = None if host is None else host.decode("latin-1")
        is_elsewhere = not is_allowed_origin(origin.decode("latin-1"), own_host, allowed_origins)
    if is_elsewhere:
        raise HttpError(403, "This origin is not allowed; add it to ALLOWED_ORIGINS.", "FORBIDDEN_ORIGIN")


def cors_headers(headers: dict[bytes, bytes], allowed_origins: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Headers that let a page of an allowed origin read the response."""
    if not allowed_origins:
        return []
    origin = headers.get(b"origin")
    if origin is None or origin.decode("latin-1").rstrip("/") not in allowed_origins:
        return [(b"vary", b"origin")]
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", EXPOSED_HEADERS),
        (b"vary", b"origin"),
    ]


def preflight_headers(headers: dict[bytes, bytes], allowed_origins: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Headers of the response to a CORS preflight; raises HttpError."""
    check_origin(headers, allowed_origins)
    return [
        *cors_headers(headers, allowed_origins),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", ALLOWED_HEADERS),
        (b"access-control-max-age", PREFLIGHT_MAX_AGE),
    ]
