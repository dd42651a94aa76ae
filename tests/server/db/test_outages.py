"""Which errors of the driver say that the database was away."""

from typing import NoReturn

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from server.db.outages import is_database_outage, is_database_unavailable


async def test_connection_that_is_broken_off_while_it_is_made_is_an_outage():
    async def connect() -> NoReturn:
        # What asyncpg raises when the server goes away between two messages.
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    with pytest.raises(DBAPIError) as raised:
        async with engine.connect():
            raise AssertionError
    await engine.dispose()

    assert is_database_unavailable(raised.value)
    assert is_database_outage(raised.value)
