"""Fixtures for tests of probes."""

from collections.abc import AsyncIterator

import pytest

from server.probes.probe import Prober
from server.ssrf import PrivateAddresses


@pytest.fixture
async def prober() -> AsyncIterator[Prober]:
    prober = Prober(private_addresses=PrivateAddresses.LOOPBACK)
    yield prober
    await prober.close()
