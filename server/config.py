"""Every setting, read once from the environment and checked all together."""

import re
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from server.errors import StartupProblem
from server.guard import Inside

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(value: Any) -> Any:
    """Seconds, or a number with ms, s, m, h or d behind it: 30, 30s, 10m, 24h."""
    if isinstance(value, timedelta):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", str(value))
    if found is None:
        raise ValueError("must be a duration such as 30, 30s, 10m or 24h")
    return timedelta(seconds=float(found[1]) * UNITS[found[2] or ""])


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than nothing")
    return value


def _words(value: Any) -> Any:
    """A list separated by commas."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https address")
    if parts.path.rstrip("/") or parts.query or parts.fragment:
        raise ValueError("must be the host only, without a path")
    return value.rstrip("/")


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http or https address, such as http://127.0.0.1:4318")
    if parts.username or parts.password:
        raise ValueError("must not hold a password: give it by OTEL_EXPORTER_OTLP_HEADERS")
    return value.rstrip("/")


def _database_url(value: SecretStr) -> SecretStr:
    # Kept as a string: pydantic's own type refuses addresses of unix sockets.
    # Several servers, separated by commas, are the driver's affair: one of them is enough to judge the rest.
    one = re.sub(r",[^/?@]*(?=[/?]|$)", "", value.get_secret_value(), count=1)
    try:
        url = make_url(one)
    except (ArgumentError, ValueError):
        raise ValueError("must look like postgresql://user:password@host:5432/name") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise ValueError("must start with postgresql://")
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    parts = urlsplit(value.get_secret_value())
    if parts.scheme not in ("redis", "rediss", "unix") or not (parts.hostname or parts.path):
        raise ValueError("must look like redis://user:password@host:6379/0")
    return value


def _lease(value: timedelta) -> timedelta:
    if value < timedelta(seconds=2):
        raise ValueError("must be at least 2s, or busy workers lose their jobs")
    return value


def _signing_key(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < 16:
        raise ValueError("must have at least 16 characters, at random")
    return value


def _inside(value: Any) -> Any:
    """A switch, with a word for what lies between off and on."""
    words = {"0": "off", "no": "off", "false": "off", "1": "all", "yes": "all", "true": "all", "on": "all"}
    return words.get(str(value).strip().lower(), value)


def _origins(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_http_url(value) for value in values)


Duration = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_positive)]
Pause = Annotated[timedelta, BeforeValidator(_duration)]  # may be nothing
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]


class Settings(BaseSettings):
    """One frozen value, made in `cli.py` and passed down. An empty variable counts as not set."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore", validate_default=True)

    novita_api_key: SecretStr | None = Field(
        default=None, description="Key of the Novita.ai API. Without one, `pilotlight up` runs the simulator."
    )
    novita_api_base_url: Annotated[str, AfterValidator(_http_url)] = Field(
        default="https://api.novita.ai", description="Host of the Novita.ai API, without a path."
    )
    novita_rate_limit: int = Field(
        default=100, ge=0, description="Provider calls a minute; more wait their turn. 0 turns the limit off."
    )
    request_timeout: Duration = Field(default=timedelta(seconds=30), description="How long one provider call may take.")
    request_deadline: Duration = Field(
        default=timedelta(seconds=30),
        description="How long after it was asked for a provider call may still be begun: waits in line and retries.",
    )
    breaker_threshold: int = Field(
        default=5, ge=1, description="Provider failures in a row after which calls fail at once for a while."
    )
    breaker_recovery: Duration = Field(
        default=timedelta(seconds=60), description="How long that while is, before one trial call."
    )
    build_pages: bool = Field(
        default=False,
        description="Whether `up` in a clone builds the dashboard and GraphiQL, in the background, when their sources "
        "have changed; `make up` says yes.",
    )
    simulator_speed: float = Field(
        default=1.0, gt=0, le=1000, description="How fast the simulator's instances live; 1 suits a demonstration."
    )

    database_url: Annotated[SecretStr, AfterValidator(_database_url)] | None = Field(
        default=None,
        description="PostgreSQL 15 or newer; of several servers (`one:5432,two:5432`) the one that takes writes is "
        "used. Without one, an embedded server in PILOTLIGHT_HOME.",
    )
    database_direct_url: Annotated[SecretStr, AfterValidator(_database_url)] | None = Field(
        default=None,
        description="The server itself, where DATABASE_URL is a pooler in transaction mode such as PgBouncer.",
    )
    database_read_url: Annotated[SecretStr, AfterValidator(_database_url)] | None = Field(
        default=None,
        description="A replica, or several, for lists and for the past of the event log. It is only read where it has "
        "everything that was acknowledged before; else, and without one, the primary is.",
    )
    database_read_patience: Duration = Field(
        default=timedelta(milliseconds=100),
        description="How long a read waits for a replica that is behind before it goes to the primary.",
    )
    database_pool_size: int = Field(
        default=10, ge=2, le=500, description="Connections a process holds at most in each of its two pools."
    )
    database_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long one statement, or the wait for a connection, may take."
    )
    pilotlight_home: Path = Field(
        default=Path(".pilotlight"), description="Folder for the embedded database and the simulator's state."
    )

    host: str = Field(default="127.0.0.1", description="Address the API listens on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port the API listens on; 0 takes a free one.")
    allowed_origins: Annotated[Words, AfterValidator(_origins)] = Field(
        default=(), description="Origins of web pages that may call the API, separated by commas. Our own always may."
    )

    allowed_hosts: Words = Field(
        default=(),
        description="Names that a server on a loopback address may be called by, besides localhost and its addresses.",
    )
    request_body_limit: int = Field(
        default=1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="The largest body of a request, in bytes."
    )
    request_header_timeout: Duration = Field(
        default=timedelta(seconds=10), description="How long a client may take to send the head of a request."
    )
    request_body_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long a client may take to send the body of a request."
    )
    response_timeout: Duration = Field(
        default=timedelta(seconds=60), description="How long a client may read nothing of an answer that waits for it."
    )
    request_rate_limit: int = Field(
        default=6000,
        ge=0,
        description="Requests a minute of one token in one process, as counted in docs/api.md. 0: any number.",
    )
    query_timeout: Duration = Field(
        default=timedelta(seconds=90),
        description="How long one query or mutation may take; longer than the longest `awaitOperation`.",
    )
    query_max_characters: int = Field(default=50_000, ge=1000, description="Characters of a document.")
    query_max_tokens: int = Field(default=1000, ge=10, le=10_000, description="Tokens of a document.")
    query_max_depth: int = Field(
        default=16, ge=1, le=50, description="Levels of fields; introspection as tools ask for it has 15."
    )
    query_max_fields: int = Field(
        default=1000, ge=10, le=10_000, description="Fields of an operation, with its fragments spread."
    )
    query_max_aliases: int = Field(default=100, ge=0, description="Aliases of an operation, with its fragments spread.")
    query_max_directives: int = Field(default=50, ge=0, description="Directives of an operation, counted likewise.")
    query_max_root_fields: int = Field(default=20, ge=1, description="Fields that one operation may begin with.")
    query_max_cost: int = Field(
        default=20_000, ge=1, description="Values that an answer may hold at most, as counted in docs/api.md."
    )
    introspection: bool = Field(default=True, description="Whether clients may ask for the schema.")
    suggestions: bool = Field(default=True, description="Whether errors say which name may have been meant.")
    persisted_documents: Path | None = Field(
        default=None, description="A folder of .graphql files, or a manifest in JSON, of documents known by their hash."
    )
    persisted_only: bool = Field(default=False, description="Refuse every document that is not one of those.")

    socket_init_timeout: Duration = Field(
        default=timedelta(seconds=10), description="How long a new WebSocket may take to introduce itself."
    )
    socket_ping_interval: Duration = Field(
        default=timedelta(seconds=25),
        description="After how much silence a watcher is pinged; after as much again it is closed.",
    )
    socket_token_check: Duration = Field(
        default=timedelta(seconds=5), description="How often the tokens behind open connections are looked up."
    )
    socket_message_bytes: int = Field(
        default=256 * 1024,
        ge=1024,
        le=16 * 1024 * 1024,
        description="The largest message of a WebSocket, or request for a stream.",
    )
    sockets_per_process: int = Field(
        default=20_000, ge=1, description="WebSockets and streams that one process serves; more get 503."
    )
    sockets_per_token: int = Field(
        default=1_000, ge=1, description="WebSockets and streams that one token may have open in one process."
    )
    operations_per_socket: int = Field(default=1_000, ge=1, description="Operations that may be open on one WebSocket.")
    operations_per_token: int = Field(
        default=5_000, ge=1, description="Operations that one token may have open in one process."
    )

    default_regions: Words = Field(
        default=("AS-SGP-02", "CN-HK-01", "AS-IN-01"), min_length=1, description="Regions to try, in this order."
    )
    instance_poll_interval: Duration = Field(
        default=timedelta(seconds=30), description="The slowest pace at which a moving instance is looked at."
    )
    instance_max_wait: Duration = Field(
        default=timedelta(minutes=10), description="How long an instance may take to run before it has failed."
    )
    estimated_ready_time: Duration = Field(
        default=timedelta(minutes=4), description="What callers are told a create takes, until there is history."
    )
    create_grace: Duration = Field(
        default=timedelta(seconds=60),
        description="How long the provider's list must show nothing before a create without an answer is tried again.",
    )

    provider_max_wait: Duration = Field(
        default=timedelta(hours=1),
        description="How long an operation waits for a provider that can't be reached before it has failed.",
    )

    max_concurrent_jobs: int = Field(default=10, ge=1, le=10_000, description="Jobs that one process runs at once.")
    max_retry_attempts: int = Field(default=3, ge=1, le=100, description="Attempts of a job before it has failed.")
    job_poll_interval: Duration = Field(
        default=timedelta(seconds=1), description="How often workers look for jobs without being woken."
    )
    job_lease: Annotated[Duration, AfterValidator(_lease)] = Field(
        default=timedelta(seconds=20), description="How long a worker that went silent keeps its jobs."
    )
    job_retention: Duration = Field(default=timedelta(hours=24), description="How long finished jobs are kept.")
    event_retention: Duration = Field(default=timedelta(days=30), description="How long events can be replayed.")
    shutdown_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long running jobs and requests get when the process is stopped."
    )

    product_cache_ttl: Duration = Field(default=timedelta(minutes=5), description="How long products are believed.")
    template_cache_ttl: Duration = Field(default=timedelta(minutes=10), description="How long templates are believed.")
    instance_cache_ttl: Duration = Field(
        default=timedelta(seconds=30),
        description="How long a look at one moving instance answers for further readers of it.",
    )
    instance_state_cache_ttl: Duration = Field(
        default=timedelta(seconds=60), description="How long it is remembered when an instance was last seen, and how."
    )
    fleet_cache_ttl: Duration = Field(
        default=timedelta(seconds=30), description="How long the provider's list of instances is believed in `fleet`."
    )
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = Field(
        default=None, description="Redis, to share the caches between processes. Without one each has its own."
    )
    reconcile_interval: Duration = Field(
        default=timedelta(minutes=5), description="How often all rows are compared with the provider's list."
    )

    health_check_timeout: Duration = Field(default=timedelta(seconds=10), description="How long one probe may take.")
    health_check_retries: int = Field(
        default=3, ge=0, le=10, description="Further probes of an unhealthy endpoint before a check has its verdict."
    )
    health_check_delay: Duration = Field(
        default=timedelta(seconds=2), description="The pause before the first of them; it doubles from one to the next."
    )
    health_check_max_wait: Duration = Field(
        default=timedelta(minutes=5), description="How long an instance's endpoints may take to answer."
    )

    webhook_timeout: Duration = Field(
        default=timedelta(seconds=10), description="How long a webhook's receiver may take to answer."
    )
    webhook_signing_key: Annotated[SecretStr, AfterValidator(_signing_key)] | None = Field(
        default=None,
        description="Makes the secrets that webhooks are signed with; the same for all processes. "
        "Without one, that of `pilotlight up` on this home.",
    )
    allow_private_webhooks: Annotated[Inside, BeforeValidator(_inside)] = Field(
        default=Inside.OFF,
        description="Webhooks to addresses that are not public: off, loopback or all. `pilotlight up` allows loopback.",
    )

    worker_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port on which `pilotlight worker` answers /healthz, /readyz and /metrics; 0 takes a free one.",
    )
    drain_time: Pause = Field(
        default=timedelta(0),
        description="How long a process that was told to stop serves on, not ready, before it closes anything.",
    )
    otel_exporter_otlp_endpoint: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None, description="Collector of OpenTelemetry traces, over OTLP/HTTP. Without one none are made."
    )
    otel_service_name: str = Field(default="pilotlight", min_length=1, description="Whose traces these are.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="What is worth a line.")
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="json for machines, text for people; auto is text on a terminal."
    )

    @classmethod
    def from_env(cls, **overrides: Any) -> "Settings":
        """Read and check everything; one message lists every problem."""
        try:
            return cls(**overrides)
        except ValidationError as error:
            lines = sorted({_line(problem) for problem in error.errors(include_url=False)})
            raise StartupProblem("these settings are not right:\n" + "\n".join(lines)) from None

    @field_validator("database_direct_url", "database_read_url")
    @classmethod
    def _with_a_database(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is not None and info.data.get("database_url") is None:
            raise ValueError("is of no use without DATABASE_URL")
        return value

    def directly(self, database_url: str) -> str:
        """Where to go past a pooler, for what it can't do; without one, the same."""
        return database_url if self.database_direct_url is None else self.database_direct_url.get_secret_value()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach us."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _line(problem: Any) -> str:
    field = str(problem["loc"][0])
    reason = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    # An address with an @ has somebody's password before it.
    is_secret = "SecretStr" in str(Settings.model_fields[field].annotation) or "@" in str(problem["input"])
    shown = "" if is_secret else f" (it is {str(problem['input'])!r})"
    return f"  {field.upper()}: {reason}{shown}"
