"""Why a GraphQL request got no data, or not all of it."""

from server.error_codes.code import ErrorCode

CODES = (
    ErrorCode("UNAUTHENTICATED", "The token is missing, unknown, expired or revoked.", "Send a valid token."),
    ErrorCode(
        "FORBIDDEN", "The token's role does not allow this.", "Use a token with the role that the message names."
    ),
    ErrorCode("FORBIDDEN_ORIGIN", "The page's origin is not allowed.", "Add the origin to ALLOWED_ORIGINS."),
    ErrorCode("UNKNOWN_HOST", "The Host header is not one of this server's names.", "Add the name to ALLOWED_HOSTS."),
    ErrorCode("BAD_REQUEST", "The document, its variables or the HTTP request is malformed.", "Correct the request."),
    ErrorCode("UNSUPPORTED_MEDIA_TYPE", "The body is not JSON in UTF-8.", "Send application/json, uncompressed."),
    ErrorCode("BODY_TOO_LARGE", "The body is too large, or in too many small chunks.", "Send less, or larger chunks."),
    ErrorCode("HEAD_TOO_LARGE", "The URL or the headers are too large.", "Send the document in the body of a POST."),
    ErrorCode("REQUEST_TIMEOUT", "The request did not arrive in time.", "Send it again.", retryable=True),
    ErrorCode("METHOD_NOT_ALLOWED", "Only GET and POST are served.", "Use POST."),
    ErrorCode("NOT_ACCEPTABLE", "No content type of Accept is served.", "Accept application/json."),
    ErrorCode("NEEDS_STREAM", "A subscription was sent as a plain request.", "Use WebSocket or server-sent events."),
    ErrorCode(
        "RATE_LIMITED",
        "Too many requests of this token or project, wrong tokens of this address, or calls to the provider.",
        "Wait for `retryAfterMs`, then send it again.",
        retryable=True,
    ),
    ErrorCode(
        "TOO_MANY_OPERATIONS", "Too many subscriptions or streams are open.", "Close some of them.", retryable=True
    ),
    ErrorCode(
        "TOO_MANY_CONNECTIONS",
        "The client's address, or the server, has too many, or too many bytes wait in them.",
        "Close some.",
        retryable=True,
    ),
    ErrorCode("LIMIT_EXCEEDED", "The document exceeds the limit that `limit` names.", "Ask for less at once."),
    ErrorCode("TIMEOUT", "The query took longer than QUERY_TIMEOUT.", "Ask for less, or try again.", retryable=True),
    ErrorCode("INVALID_CURSOR", "The cursor is malformed or of another list.", "Use a cursor of the same query."),
    ErrorCode("INVALID_PAGE_SIZE", "`first` is not 1 to 100.", "Correct `first`."),
    ErrorCode("INVALID_FILTER", "A filter has too many or malformed values.", "Correct the filter."),
    ErrorCode(
        "INVALID_METRICS_RANGE",
        "The interval is too short, the times are in the wrong order, or there would be too many points.",
        "Correct since, until or interval.",
    ),
    ErrorCode("INVALID_TIMEOUT", "The timeout is out of range.", "Correct the timeout."),
    ErrorCode("INVALID_IDS", "There are too many ids.", "Ask for fewer at once."),
    ErrorCode(
        "PERSISTED_QUERY_NOT_FOUND",
        "The server does not know a document with this hash.",
        "Send the document with its hash.",
        retryable=True,
    ),
    ErrorCode("PERSISTED_QUERY_HASH_MISMATCH", "The hash is not that of the document.", "Hash the document sent."),
    ErrorCode("DOCUMENT_NOT_ALLOWED", "Only persisted documents are served.", "Register the document."),
    ErrorCode(
        "CURSOR_EXPIRED", "The events after this cursor are no longer stored.", "Read the current state and continue."
    ),
    ErrorCode(
        "RESUME",
        "This server can't read the event log at the moment.",
        "Subscribe again with the last cursor.",
        retryable=True,
    ),
    ErrorCode("UNAVAILABLE", "The database can't be reached.", "Send it again.", retryable=True),
    ErrorCode("INTERNAL", "A mistake in Pilotlight; the log has the details.", "Report it with the requestId."),
)

WARNINGS = (
    ErrorCode(
        "PROVIDER_UNREACHABLE",
        "The provider can't be reached; the state shown is the last known.",
        "Wait: operations continue when the provider responds.",
        retryable=True,
    ),
    ErrorCode("NO_WORKERS", "No worker is alive; accepted work waits.", "The operator has to start a worker."),
    ErrorCode(
        "REDIS_UNAVAILABLE",
        "Redis can't be reached; each process uses its own caches.",
        "Nothing is lost. The operator has to restore Redis.",
        retryable=True,
    ),
)
