"""A `pilotlight up` of its own, because the attacks also take what the limits allow."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.homes import copy_of
from tests.support.processes import Up, up


@pytest.fixture(scope="package")
async def attacked_up(made_home: Path) -> AsyncIterator[Up]:
    with copy_of(made_home) as home:
        async with up(home, env={"LOG_FORMAT": "json"}) as running:
            yield running
