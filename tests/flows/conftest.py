"""Fixtures: homes that need no initdb, and one `pilotlight up` shared by all tests that only read from it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.homes import copy_of
from tests.support.processes import Up, up


@pytest.fixture
def home(migrated_home: Path) -> Path:
    return migrated_home


@pytest.fixture(scope="session")
async def shared_up(made_home: Path) -> AsyncIterator[Up]:
    """A running `pilotlight up` that writes JSON logs; no test stops it."""
    with copy_of(made_home) as home:
        async with up(home, env={"LOG_FORMAT": "json", "LOG_LEVEL": "debug"}) as running:
            yield running
