"""Every connection has bounds that the server enforces."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.timeouts import Timeouts

BOUNDS = """
    SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock,
           current_setting('idle_in_transaction_session_timeout') AS idle,
           current_setting('tcp_keepalives_idle') AS alive
"""
TIMEOUTS = Timeouts(statement=timedelta(seconds=7), lock=timedelta(milliseconds=1500), idle=timedelta(seconds=3))


@pytest.fixture
async def bounded(database_url: str):
    database = Database(database_url, timeouts=TIMEOUTS, read_url=database_url)
    yield database
    await database.close()


async def test_all_kinds_of_connections_are_bounded(bounded: Database):
    async with bounded.read() as session:
        read = (await session.execute(text(BOUNDS))).one()
    async with bounded.write() as session:
        written = (await session.execute(text(BOUNDS))).one()
    async with bounded.read_replica() as session:
        assert session is not None
        replica = (await session.execute(text(BOUNDS))).one()
    raw = await bounded.raw.fetchrow(BOUNDS)
    assert raw is not None
    dedicated = await bounded.connect(server_settings={"application_name": "worker"})
    try:
        own = await dedicated.fetchrow(BOUNDS)
    finally:
        await dedicated.close()

    assert own is not None
    alive = raw["alive"]  # "0" on a unix socket, which needs none
    assert alive in ("0", "10")
    assert [tuple(each) for each in (read, written, replica, raw, own)] == [("14s", "1500ms", "3s", alive)] * 5
