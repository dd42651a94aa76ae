"""A process that has just started on a machine whose clock is wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

import server.clock
from server.db.database import Database
from tests.support.world import World


@asynccontextmanager
async def wrong_clock(world: World, database_url: str, wrong_by: timedelta) -> AsyncIterator[None]:
    """All that the world does within the block is done by that process."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + wrong_by

    elsewhere, here = Database(database_url), (world.database, world.worker)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.clock, "datetime", Wrong)
        patch.setattr(server.clock, "CLOCK", server.clock.Clock())
        world.database = elsewhere
        world.worker = world.worker_with(world.novita)
        try:
            yield
        finally:
            world.database, world.worker = here
            await elsewhere.close()
