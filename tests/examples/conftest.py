"""Fixtures for the examples: one running Pilotlight."""

from collections.abc import AsyncIterator

import pytest

from tests.support.databases import DatabaseMaker
from tests.support.processes import Up, up
from tests.support.watcher import GraphQLClient


@pytest.fixture(scope="package")
async def server(new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """One Pilotlight for all examples, on a database of its own."""
    async with up(tmp_path_factory.mktemp("home"), env={"DATABASE_URL": await new_database.migrated()}) as running:
        yield running


@pytest.fixture
def caller(server: Up) -> GraphQLClient:
    return GraphQLClient(server.graphql_url, server.token)
