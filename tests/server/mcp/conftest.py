"""One running Pilotlight for the tests of the tools."""

from collections.abc import AsyncIterator

import pytest

from tests.support.databases import DatabaseMaker
from tests.support.processes import Up, up


@pytest.fixture(scope="package")
async def running(new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up(tmp_path_factory.mktemp("home"), env={"DATABASE_URL": await new_database.migrated()}) as running:
        yield running
