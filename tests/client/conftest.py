"""Fixtures for the client: one running Pilotlight, and clients of it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from pilotlight_client import AsyncPilotlight, Pilotlight

from tests.support.databases import DatabaseMaker
from tests.support.processes import Up, up


@pytest.fixture(scope="package")
async def running(new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """`pilotlight up`, on a database of its own."""
    async with up(tmp_path_factory.mktemp("home"), env={"DATABASE_URL": await new_database.migrated()}) as running:
        yield running


@pytest.fixture
async def client(running: Up) -> AsyncIterator[AsyncPilotlight]:
    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        yield client


@pytest.fixture
def sync_client(running: Up) -> Iterator[Pilotlight]:
    with Pilotlight(running.graphql_url, running.token) as client:
        yield client
