from collections.abc import AsyncIterator

import pytest

from server.guard import Inside
from server.probes.probe import Prober


@pytest.fixture
async def prober() -> AsyncIterator[Prober]:
    prober = Prober(inside=Inside.LOOPBACK)
    yield prober
    await prober.close()
