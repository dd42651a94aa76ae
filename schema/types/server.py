"""The server itself, as callers see it."""

from datetime import datetime, timedelta

import strawberry

from schema.context import Info
from schema.words import described
from server import facts

described(
    facts.BreakerState,
    description="Whether the provider is being called.",
    values={
        "CLOSED": "All is well: it is called.",
        "OPEN": "It failed so often that it is not called for a while; what needs it is refused at once.",
        "HALF_OPEN": "That while is over: the next call decides.",
    },
)
described(
    facts.DatabaseKind,
    description="Where the rows are.",
    values={"EMBEDDED": "In a PostgreSQL that `pilotlight up` runs itself.", "EXTERNAL": "In the one of DATABASE_URL."},
)


@strawberry.type(description="The way to the provider, as this process sees it.")
class ProviderInfo:
    host: str = strawberry.field(description="Its host, such as api.novita.ai.")
    is_simulator: bool = strawberry.field(description="Whether that is a simulator: then nothing real is created.")
    breaker: facts.BreakerState = strawberry.field(
        description="The worst of its circuits: one per route and one for it."
    )
    retry_at: datetime | None = strawberry.field(description="When it is called again; null while it is called.")
    suspended: list[str] = strawberry.field(description="The circuits that are not closed, such as `host`.")


@strawberry.type(description="The database.")
class DatabaseInfo:
    kind: facts.DatabaseKind = strawberry.field(description="Where it is.")
    version: str = strawberry.field(description="PostgreSQL's version, such as 18.4.")


@strawberry.type(description="The log of events.")
class EventLogInfo:
    head: str = strawberry.field(description="The cursor of the newest event: watch from it to miss nothing.")
    has_sequencer: bool = strawberry.field(
        description="Whether some process gives events their places. Without one nothing new is told; one is elected "
        "within a second."
    )
    is_followed: bool = strawberry.field(
        description="Whether this process reads the log, and so can tell its watchers."
    )


@strawberry.type(description="How much can be asked for at once.")
class ServerLimits:
    page_size: int = strawberry.field(description="The largest `first`.")
    nodes: int = strawberry.field(description="The most ids of `nodes`.")
    bulk_size: int = strawberry.field(description="The most ids of `stopInstances` and `deleteInstances`.")
    filter_values: int = strawberry.field(description="The most values of one field of a filter.")
    await_timeout: timedelta = strawberry.field(description="The longest `timeout` of `awaitOperation`.")
    event_retention: timedelta = strawberry.field(description="How long past events can be read and replayed.")
    sockets_per_token: int = strawberry.field(description="WebSockets and streams of one token at once, per process.")


@strawberry.type(description="What this server can do beyond the usual.")
class ServerFeatures:
    signs_webhooks: bool = strawberry.field(description="Whether it has a key to sign webhooks with.")
    shares_caches: bool = strawberry.field(description="Whether its caches are shared with other processes.")
    private_webhooks: bool = strawberry.field(description="Whether webhooks may go to addresses that are not public.")


@strawberry.type(description="One setting of the server.")
class Setting:
    name: str = strawberry.field(description="The environment variable, such as MAX_CONCURRENT_JOBS.")
    value: str = strawberry.field(description="Its value as one would write it, such as 30s.")


@strawberry.type(description="The server: the process that answers, and what it needs.")
class ServerInfo:
    version: str = strawberry.field(description="Pilotlight's version, such as 0.1.0.")
    started_at: datetime = strawberry.field(description="When this process began.")
    uptime: timedelta = strawberry.field(description="How long ago that was.")
    provider: ProviderInfo = strawberry.field(description="The way to the provider.")
    database: DatabaseInfo = strawberry.field(description="The database.")
    event_log: EventLogInfo = strawberry.field(description="The log of events.")
    workers: int = strawberry.field(
        description="Workers that are alive, in all processes; each process has two. 0: accepted work waits."
    )
    limits: ServerLimits = strawberry.field(description="How much can be asked for at once.")
    features: ServerFeatures = strawberry.field(description="What it can do beyond the usual.")

    @strawberry.field(description="How it is set, by name. Secrets and addresses are left out.")
    def settings(self, info: Info) -> list[Setting]:
        shown = info.context.services.facts.settings()
        return [Setting(name=name, value=value) for name, value in shown.items()]
