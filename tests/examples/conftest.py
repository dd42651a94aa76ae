from collections.abc import AsyncIterator

import pytest

from tests.conftest import DatabaseMaker
from tests.flows.watcher import Caller
from tests.processes import Up, up


@pytest.fixture(scope="package")
async def server(new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """One Pilotlight for all examples, on a database of its own."""
    async with up(tmp_path_factory.mktemp("home"), env={"DATABASE_URL": await new_database()}) as running:
        yield running


@pytest.fixture
def caller(server: Up) -> Caller:
    return Caller(server.graphql_url, server.token)
