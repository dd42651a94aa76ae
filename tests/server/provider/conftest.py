"""Fixtures for tests of the provider's identity: a database, and the simulators that are taken for providers."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from pydantic import SecretStr

from server.runtime import Runtime
from server.simulator.server import Simulator
from tests.support.world import World, a_simulator

KEY = "sk_of_the_real_account"

Connect = Callable[..., AbstractAsyncContextManager[Runtime]]


@pytest.fixture
async def real() -> AsyncIterator[Simulator]:
    """A simulator that is taken for the real provider: it needs a key and does not name its world."""
    async with a_simulator(api_keys=(KEY, "sk_second"), is_anonymous=True) as simulator:
        yield simulator


@pytest.fixture
def connect(world: World, database_url: str) -> Connect:
    """A process over the test's database, with a provider."""

    @asynccontextmanager
    async def connect(simulator: Simulator, *, key: str | None = None) -> AsyncIterator[Runtime]:
        runtime = Runtime(
            world.settings,
            database_url=database_url,
            novita_url=simulator.url,
            novita_key=SecretStr(key or simulator.api_key),
        )
        async with runtime:
            yield runtime

    return connect
