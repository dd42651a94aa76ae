"""Fixtures for tests of the simulator."""

from collections.abc import AsyncIterator

import pytest

from server.simulator.options import SimulatorOptions
from tests.server.simulator.account import Account, open_account


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    async with open_account(SimulatorOptions(price_drift=0)) as account:
        yield account
