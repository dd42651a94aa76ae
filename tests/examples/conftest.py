from collections.abc import AsyncIterator

import pytest

from tests.conftest import DatabaseMaker
from tests.flows.watcher import Caller
from tests.processes import Up, up


@pytest.fixture(scope="module")
async def server(
    new_database: DatabaseMaker, migrated_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Up]:
    """One Pilotlight for all examples of a module, on a database of its own."""
    url = await new_database()
    async with up(tmp_path_factory.mktemp("home"), env={"DATABASE_URL": url}) as running:
        yield running


@pytest.fixture
def caller(server: Up) -> Caller:
    return Caller(server.graphql_url, server.token)
