"""Types of serverInfo."""

from datetime import datetime, timedelta

import strawberry

from schema.context import Info
from schema.enums import described
from server import server_info
from server.conversion import convert

described(
    server_info.BreakerState,
    description="State of the circuit breaker for provider calls.",
    values={
        "CLOSED": "Normal: calls are sent.",
        "OPEN": "Too many failures: no calls are sent for a while, and requests that need the provider fail at once.",
        "HALF_OPEN": "The pause is over: the next call decides.",
    },
)
described(
    server_info.DatabaseKind,
    description="Where the database runs.",
    values={"EMBEDDED": "PostgreSQL run by `pilotlight up`.", "EXTERNAL": "PostgreSQL at DATABASE_URL."},
)


@strawberry.type(description="Connection to the provider, as seen by this process.")
class ProviderInfo:
    host: str = strawberry.field(description="Host name, such as api.novita.ai.")
    is_simulator: bool = strawberry.field(
        description="Whether the provider is a simulator; then nothing real is created."
    )
    breaker: server_info.BreakerState = strawberry.field(
        description="Worst state of its circuit breakers: one per route and one for the host."
    )
    retry_at: datetime | None = strawberry.field(description="When calls resume; null while calls are sent.")
    calls_per_minute: int | None = strawberry.field(
        description="Calls per minute in use: NOVITA_RATE_LIMIT, or less after the provider refused calls for their "
        "rate. Null without a limit."
    )
    suspended: list[str] = strawberry.field(description="Circuit breakers that are not closed, such as `host`.")


@strawberry.type(description="The database.")
class DatabaseInfo:
    kind: server_info.DatabaseKind = strawberry.field(description="Where it runs.")
    version: str = strawberry.field(description="PostgreSQL's version, such as 18.4.")


@strawberry.type(description="The event log.")
class EventLogInfo:
    head: str = strawberry.field(description="Cursor of the newest event; subscribe from it to miss nothing.")
    has_sequencer: bool = strawberry.field(
        description="Whether a process assigns event positions. Without one no new events are sent; a new one is "
        "elected within a second."
    )
    is_followed: bool = strawberry.field(
        description="Whether this process reads the event log and can serve subscriptions."
    )


@strawberry.type(description="Limits of one request.")
class ServerLimits:
    page_size: int = strawberry.field(description="Maximum of `first`.")
    nodes: int = strawberry.field(description="Maximum number of ids in `nodes`.")
    bulk_size: int = strawberry.field(description="Maximum number of ids in `stopInstances` and `deleteInstances`.")
    filter_values: int = strawberry.field(description="Maximum number of values in one filter field.")
    await_timeout: timedelta = strawberry.field(description="Maximum `timeout` of `awaitOperation`.")
    event_retention: timedelta = strawberry.field(description="How long events can be read and replayed.")
    sockets_per_token: int = strawberry.field(
        description="Maximum concurrent WebSockets and event streams per token and process."
    )


@strawberry.type(description="Optional features.")
class ServerFeatures:
    signs_webhooks: bool = strawberry.field(description="Whether webhooks are signed.")
    shares_caches: bool = strawberry.field(description="Whether caches are shared with other processes.")
    private_webhooks: bool = strawberry.field(description="Whether webhooks may be sent to private addresses.")


@strawberry.type(description="A setting of the server.")
class Setting:
    name: str = strawberry.field(description="Environment variable, such as MAX_CONCURRENT_JOBS.")
    value: str = strawberry.field(description="Value, such as 30s.")


def _provider(self: "ServerInfo") -> ProviderInfo:
    status = self.facts.provider
    calls_per_minute = self.cluster.calls_per_minute
    return convert(ProviderInfo, status, suspended=list(status.suspended), calls_per_minute=calls_per_minute)


@strawberry.type(description="The server process and its dependencies.")
class ServerInfo:
    """The provider's state is read when it is selected."""

    facts: strawberry.Private[server_info.ServerInfo]
    cluster: strawberry.Private[server_info.ClusterStatus]
    version: str = strawberry.field(description="Pilotlight's version, such as 0.2.0.")
    started_at: datetime = strawberry.field(description="Start time of this process.")
    uptime: timedelta = strawberry.field(description="Time since the start.")
    provider: ProviderInfo = strawberry.field(resolver=_provider, description="Connection to the provider.")
    database: DatabaseInfo = strawberry.field(description="The database.")
    event_log: EventLogInfo = strawberry.field(description="The event log.")
    workers: int = strawberry.field(
        description="Live workers in all processes; each process has two. 0: accepted operations wait."
    )
    limits: ServerLimits = strawberry.field(description="Limits of one request.")
    features: ServerFeatures = strawberry.field(description="Optional features.")

    @strawberry.field(description="Settings, by name, without secrets and addresses.")
    def settings(self, info: Info) -> list[Setting]:
        shown = info.context.services.server_info.settings()
        return [Setting(name=name, value=value) for name, value in shown.items()]
