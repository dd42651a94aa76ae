"""Settings of the database and of the folder for local files."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from server.config.types import DatabaseUrl, Duration, DurationOrZero, SettingsGroup


def _encryption_key(value: SecretStr) -> SecretStr:
    if any(len(key.strip()) < 32 for key in value.get_secret_value().split(",")):
        raise ValueError("must have at least 32 random characters, or be several such keys separated by commas")
    return value


class DatabaseSettings(SettingsGroup):
    database_url: DatabaseUrl | None = Field(
        default=None,
        description="PostgreSQL 15 or newer. With several hosts (`one:5432,two:5432`) the primary is used. Without a "
        "URL, an embedded server in PILOTLIGHT_HOME.",
    )
    database_direct_url: DatabaseUrl | None = Field(
        default=None,
        description="The server itself, if DATABASE_URL is a pooler in transaction mode such as PgBouncer.",
    )
    database_read_url: DatabaseUrl | None = Field(
        default=None,
        description="One or several replicas, for lists and past events. A replica is used only if it has replayed "
        "every acknowledged write; otherwise the primary is read.",
    )
    database_read_patience: Duration = Field(
        default=timedelta(milliseconds=100),
        description="How long a read waits for a replica that is behind before it uses the primary.",
    )
    database_pool_size: int = Field(
        default=10,
        ge=2,
        le=500,
        description="Maximum number of connections in each of a process's two pools, and in each of two more to "
        "`DATABASE_READ_URL`.",
    )
    database_timeout: Duration = Field(
        default=timedelta(seconds=30), description="Timeout of one statement, and of waiting for a connection."
    )
    database_start_timeout: DurationOrZero = Field(
        default=timedelta(minutes=5),
        description="How long `up`, `serve` and `worker` wait at their start for a database that is away or "
        "restarting, before they end with an error.",
    )
    database_lock_timeout: Duration = Field(
        default=timedelta(seconds=15),
        description="How long a statement waits for a row that another transaction has locked. Then a request gets "
        "UNAVAILABLE, and a job is run again later.",
    )
    database_idle_timeout: Duration = Field(
        default=timedelta(seconds=10),
        description="How long an open transaction may be silent before the server rolls it back: a frozen process, or "
        "one whose machine is gone, keeps no row locked for longer.",
    )
    encryption_key: Annotated[SecretStr, AfterValidator(_encryption_key)] | None = Field(
        default=None,
        description="Key that encrypts stored environment variables; the same for all processes. Several, separated by "
        "commas: the first encrypts, all decrypt. Without one, they are stored in clear.",
    )
    pilotlight_home: Path = Field(
        default=Path(".pilotlight"), description="Folder of the embedded database and of the simulator's state."
    )

    @field_validator("database_direct_url", "database_read_url")
    @classmethod
    def _needs_database_url(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is not None and info.data.get("database_url") is None:
            raise ValueError("needs DATABASE_URL to be set")
        return value

    def directly(self, database_url: str) -> str:
        """The URL that bypasses a pooler, for what a pooler can't do; `database_url` if there is no pooler."""
        return database_url if self.database_direct_url is None else self.database_direct_url.get_secret_value()
