"""A sequencer and a tail at work."""

from collections.abc import AsyncIterator

import pytest

from server.db.engine import Database
from server.db.signals import Signals
from server.events.sequencer import Sequencer
from server.events.tail import Tail

from .world import running


@pytest.fixture
async def sequencer(database: Database, signals: Signals) -> AsyncIterator[Sequencer]:
    async with running(Sequencer(database, signals)) as sequencer:
        yield sequencer


@pytest.fixture
async def tail(sequencer: Sequencer, database: Database, signals: Signals) -> AsyncIterator[Tail]:
    async with running(Tail(database, signals)) as tail:
        yield tail
