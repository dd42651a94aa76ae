"""What can be told about a running server: to callers by `serverInfo`, and to whoever runs it."""

import importlib.metadata
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

from sqlalchemy import text

from server.clock import now
from server.config import Settings
from server.db.engine import Database
from server.events.cursor import Cursor
from server.events.replay import cursor_now
from server.events.sequencer import LOCK
from server.events.tail import Tail
from server.novita.breaker import Breaker

# Addresses and folders are nobody's business but the operator's; secrets are known by their type.
HIDDEN = frozenset({"pilotlight_home", "novita_api_base_url", "host", "port"})

LOOK = text("""
    SELECT current_setting('server_version') AS version,
           (SELECT count(*) FROM job_worker WHERE lease_until > clock_timestamp()) AS workers,
           EXISTS (
               SELECT FROM pg_locks
               WHERE locktype = 'advisory' AND granted AND objsubid = 1
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND (classid::bigint << 32) | objid::bigint = :lock
           ) AS has_sequencer
""")


class BreakerState(StrEnum):
    """Whether the provider is being called."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class DatabaseKind(StrEnum):
    """Where the rows are."""

    EMBEDDED = "EMBEDDED"
    EXTERNAL = "EXTERNAL"


@dataclass(frozen=True, slots=True)
class Provider:
    host: str
    is_simulator: bool
    breaker: BreakerState
    retry_at: datetime | None
    suspended: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How the parts outside of this process are doing, read in one moment."""

    database_version: str
    workers: int
    has_sequencer: bool
    head: Cursor


class Facts:
    """One per process."""

    def __init__(
        self, settings: Settings, database: Database, tail: Tail, breaker: Breaker, *, novita_url: str
    ) -> None:
        self.version = importlib.metadata.version("pilotlight")
        self.started_at = now()
        self._settings = settings
        self._database = database
        self._tail = tail
        self._breaker = breaker
        self._novita = urlsplit(novita_url)

    @property
    def uptime(self) -> timedelta:
        return now() - self.started_at

    @property
    def database_kind(self) -> DatabaseKind:
        return DatabaseKind.EMBEDDED if self._settings.database_url is None else DatabaseKind.EXTERNAL

    @property
    def is_following(self) -> bool:
        """Whether this process sees the log, and so can tell its watchers."""
        return self._tail.is_following

    @property
    def provider(self) -> Provider:
        breaker = self._breaker.snapshot()
        return Provider(
            host=self._novita.hostname or "",
            # The provider speaks https; what speaks http is a simulator.
            is_simulator=self._novita.scheme == "http",
            breaker=BreakerState(breaker.state),
            retry_at=None if breaker.retry_after is None else now() + breaker.retry_after,
            suspended=tuple(sorted(breaker.circuits)),
        )

    def settings(self) -> dict[str, str]:
        """Those that are safe to show, by their names, as one would write them."""
        shown = {
            name: getattr(self._settings, name)
            for name, field in Settings.model_fields.items()
            if name not in HIDDEN and "SecretStr" not in str(field.annotation)
        }
        return {name.upper(): _told(value) for name, value in sorted(shown.items())}

    async def standing(self) -> Standing:
        async with self._database.read() as session:
            row = (await session.execute(LOOK, {"lock": LOCK})).one()
            head = await cursor_now(session)
        return Standing(row.version, row.workers, row.has_sequencer, head)


def _told(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, tuple):
        return ",".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    return str(value)
