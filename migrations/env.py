"""Runs the migrations on the connection that `server.db.migrate` hands over, or on DATABASE_URL's."""

import asyncio
import os
from datetime import timedelta

from alembic import context
from sqlalchemy import Connection

from server.db.engine import Database
from server.db.tables import Base


def migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=Base.metadata, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def migrate_by_url() -> None:
    url = os.environ.get("DATABASE_DIRECT_URL") or os.environ["DATABASE_URL"]
    database = Database(url, pool_size=1, command_timeout=timedelta(hours=12))
    async with database.engine.connect() as connection:
        await connection.run_sync(migrate)
        await connection.commit()
    await database.close()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    asyncio.run(migrate_by_url())
