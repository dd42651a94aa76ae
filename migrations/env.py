"""Runs the migrations on the connection passed by `server.db.migrate`, or on DATABASE_URL."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from server.db.database import Database
from server.db.migrate import MIGRATION_TIMEOUTS
from server.db.tables import Base


def is_modelled(name: str | None, kind: str, _: object) -> bool:
    """For `alembic check`. The sequencer makes partitions as the log grows; no model knows them."""
    return kind != "table" or name in Base.metadata.tables


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        transaction_per_migration=True,
        compare_type=True,
        compare_server_default=True,
        include_name=is_modelled,
    )
    with context.begin_transaction():
        context.run_migrations()


async def migrate_by_url() -> None:
    url = os.environ.get("DATABASE_DIRECT_URL") or os.environ["DATABASE_URL"]
    database = Database(url, pool_size=1, timeouts=MIGRATION_TIMEOUTS)
    async with database.engine.connect() as connection:
        await connection.run_sync(migrate)
        await connection.commit()
    await database.close()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    asyncio.run(migrate_by_url())
