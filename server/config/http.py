"""Settings of the HTTP server, of GraphQL requests and of WebSockets and streams."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

from pydantic import Field

from server.config.types import Duration, DurationOrZero, HttpOrigins, Networks, SettingsGroup, Words


class HttpSettings(SettingsGroup):
    host: str = Field(default="127.0.0.1", description="Address the API listens on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port the API listens on; 0 picks a free one.")
    allowed_origins: HttpOrigins = Field(
        default=(),
        description="Origins of web pages that may call the API, separated by commas. The server's own is always "
        "allowed.",
    )
    allowed_hosts: Words = Field(
        default=(),
        description="Host names accepted by a server on a loopback address, besides localhost and its addresses.",
    )
    mcp_require_lifetime: bool = Field(
        default=True,
        description="Whether the MCP tool create_instance needs a longest run, unless the project has a default one.",
    )
    request_body_limit: int = Field(
        default=1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="Maximum size of a request body, in bytes."
    )
    request_header_timeout: Duration = Field(
        default=timedelta(seconds=10), description="How long a client may take to send the request headers."
    )
    request_body_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long a client may take to send the request body."
    )
    response_timeout: Duration = Field(
        default=timedelta(seconds=60), description="How long a client may read nothing of a pending response."
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Addresses and networks of proxies, separated by commas. From these X-Forwarded-For is read, for "
        "the limits per address.",
    )
    strangers_per_address: int = Field(
        default=1_000,
        ge=0,
        description="Maximum connections of one client address over which no valid token has come; further ones get "
        "503. 0 means no limit.",
    )
    wrong_token_limit: int = Field(
        default=60,
        ge=0,
        description="Wrong tokens per minute, client address and process; further unknown tokens get 429 unread. 0 "
        "means no limit.",
    )
    request_rate_limit: int = Field(
        default=6000,
        ge=0,
        description="Requests per minute, token and process, as counted in docs/api.md. 0 means no limit.",
    )
    request_rate_limit_per_project: int = Field(
        default=20_000, ge=0, description="The same per project, over all of its tokens. 0 means no limit."
    )
    tokens_per_project: int = Field(
        default=1_000, ge=1, description="Maximum valid tokens of a project; `createToken` is refused beyond it."
    )
    worker_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port on which `pilotlight worker` serves /healthz, /readyz and /metrics; 0 picks a free one.",
    )
    drain_time: DurationOrZero = Field(
        default=timedelta(0),
        description="How long a stopping process keeps serving, while reporting not ready, before it closes "
        "connections.",
    )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class GraphQLSettings(SettingsGroup):
    query_timeout: Duration = Field(
        default=timedelta(seconds=90),
        description="Timeout of one query or mutation; longer than the longest `awaitOperation`.",
    )
    query_max_characters: int = Field(default=50_000, ge=1000, description="Maximum characters of a document.")
    query_max_tokens: int = Field(default=1000, ge=10, le=10_000, description="Maximum tokens of a document.")
    query_max_depth: int = Field(
        default=16, ge=1, le=50, description="Maximum nesting of fields; introspection by common tools has 15 levels."
    )
    query_max_fields: int = Field(
        default=1000, ge=10, le=10_000, description="Maximum fields of an operation, fragments included."
    )
    query_max_aliases: int = Field(
        default=100, ge=0, description="Maximum aliases of an operation, fragments included."
    )
    query_max_directives: int = Field(
        default=50, ge=0, description="Maximum directives of an operation, fragments included."
    )
    query_max_root_fields: int = Field(default=20, ge=1, description="Maximum root fields of an operation.")
    query_max_cost: int = Field(
        default=20_000, ge=1, description="Maximum number of values in a response, as counted in docs/api.md."
    )
    introspection: bool = Field(default=True, description="Whether clients may query the schema.")
    suggestions: bool = Field(
        default=True, description='Whether errors suggest similar names ("Did you mean"); never without introspection.'
    )
    persisted_documents: Path | None = Field(
        default=None,
        description="Folder of .graphql files, or a JSON manifest, of documents that clients may send by hash.",
    )
    persisted_only: bool = Field(default=False, description="Whether all other documents are refused.")

    socket_init_timeout: Duration = Field(
        default=timedelta(seconds=10), description="How long a WebSocket client may take to send connection_init."
    )
    socket_ping_interval: Duration = Field(
        default=timedelta(seconds=25),
        description="A connection silent for this long is pinged; after the same time again it is closed.",
    )
    socket_token_check: Duration = Field(
        default=timedelta(seconds=5), description="How often the tokens of open connections are checked."
    )
    socket_message_bytes: int = Field(
        default=256 * 1024,
        ge=1024,
        le=16 * 1024 * 1024,
        description="Maximum size of a WebSocket message, or of a request for a stream.",
    )
    sockets_per_process: int = Field(
        default=20_000, ge=1, description="Maximum WebSockets and streams per process; further ones get 503."
    )
    sockets_per_token: int = Field(
        default=1_000, ge=1, description="Maximum WebSockets and streams per token and process."
    )
    sockets_per_project: int = Field(
        default=4_000, ge=1, description="Maximum WebSockets and streams per project and process."
    )
    operations_per_socket: int = Field(default=1_000, ge=1, description="Maximum open operations per WebSocket.")
    operations_per_token: int = Field(default=5_000, ge=1, description="Maximum open operations per token and process.")
    operations_per_project: int = Field(
        default=20_000, ge=1, description="Maximum open operations per project and process."
    )
