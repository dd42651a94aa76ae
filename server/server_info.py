"""The data behind `serverInfo`: version, settings, provider and cluster status."""

import importlib.metadata
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

from sqlalchemy import text

from server.clock import now
from server.config import Settings
from server.config.types import format_duration
from server.db.database import Database
from server.events.event import Cursor
from server.events.replay import cursor_now
from server.events.sequencer import LOCK
from server.events.tail import Tail
from server.novita.transport.circuit_breaker import BreakerState, CircuitBreaker
from server.provider.guard import ProviderGuard

# What the process lacks, in /readyz and in `fleet`.
NO_WORKERS = "no worker is alive; accepted work waits"
REDIS_LOST = "Redis does not respond; each process uses its own cache"

# Addresses and folders are for the operator only, and so is which groups and projects there are; secrets are recognised
# by their type.
HIDDEN_SETTINGS = frozenset(
    {
        "allowed_hosts",
        "allowed_origins",
        "host",
        "novita_api_base_url",
        "oidc_client_id",
        "oidc_groups",
        "oidc_issuer",
        "otel_exporter_otlp_endpoint",
        "persisted_documents",
        "pilotlight_home",
        "port",
        "public_url",
        "trusted_proxies",
    }
)

READ_CLUSTER_STATUS = text("""
    SELECT current_setting('server_version') AS version, (SELECT rate FROM provider_budget) AS calls_per_second,
           (SELECT count(*) FROM job_worker WHERE lease_until > clock_timestamp()) AS workers,
           EXISTS (
               SELECT FROM pg_locks
               WHERE locktype = 'advisory' AND granted AND objsubid = 1
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND (classid::bigint << 32) | objid::bigint = :lock
           ) AS has_sequencer
""")


class DatabaseKind(StrEnum):
    """Whether PostgreSQL is embedded or external."""

    EMBEDDED = "EMBEDDED"
    EXTERNAL = "EXTERNAL"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    host: str
    is_simulator: bool
    breaker: BreakerState
    retry_at: datetime | None
    suspended: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Status of the parts outside this process, read in one transaction."""

    calls_per_minute: int | None  # of the provider; None without a limit
    database_version: str
    workers: int
    has_sequencer: bool
    head: Cursor


class ServerInfo:
    """One per process."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        tail: Tail,
        breaker: CircuitBreaker,
        guard: ProviderGuard,
        *,
        novita_url: str,
    ) -> None:
        self.version = importlib.metadata.version("pilotlight")
        self.started_at = now()
        self._settings = settings
        self._database = database
        self._tail = tail
        self._breaker = breaker
        self._guard = guard
        self._host = urlsplit(novita_url).hostname or ""

    @property
    def uptime(self) -> timedelta:
        return now() - self.started_at

    @property
    def database_kind(self) -> DatabaseKind:
        return DatabaseKind.EMBEDDED if self._settings.database_url is None else DatabaseKind.EXTERNAL

    @property
    def is_following(self) -> bool:
        """Whether this process follows the event log, which subscriptions need."""
        return self._tail.is_following

    @property
    def provider(self) -> ProviderStatus:
        breaker = self._breaker.snapshot()
        return ProviderStatus(
            host=self._host,
            is_simulator=self._guard.is_simulator,
            breaker=breaker.state,
            retry_at=None if breaker.retry_after is None else now() + breaker.retry_after,
            suspended=tuple(sorted(breaker.circuits)),
        )

    def settings(self) -> dict[str, str]:
        """The settings that are safe to show, by name, as they are written."""
        public = {
            name: getattr(self._settings, name)
            for name, field in Settings.model_fields.items()
            if name not in HIDDEN_SETTINGS and "SecretStr" not in str(field.annotation)
        }
        return {name.upper(): _format_setting(value) for name, value in sorted(public.items())}

    async def cluster_status(self) -> ClusterStatus:
        async with self._database.read() as session:
            row = (await session.execute(READ_CLUSTER_STATUS, {"lock": LOCK})).one()
            head = await cursor_now(session)
        limit = self._settings.novita_rate_limit
        used = limit if row.calls_per_second is None else min(limit, round(row.calls_per_second * 60))
        return ClusterStatus(used if limit else None, row.version, row.workers, row.has_sequencer, head)


def _format_setting(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if value is None:
        return ""  # an empty variable counts as not set
    if isinstance(value, tuple):
        return ",".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    return str(value)
