"""A process refuses to run jobs while a job kind has no handler."""

from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from server.errors import StartupProblem
from server.queue import kinds
from server.runtime import Runtime
from tests.support.world import World


@dataclass(frozen=True, slots=True)
class Unhandled(kinds.Work):
    kind = "TEST_UNHANDLED"


async def test_job_kind_without_a_handler_stops_the_start(
    world: World, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kinds, "DECLARED", {**kinds.DECLARED, Unhandled.kind: Unhandled})
    simulator = world.simulator
    runtime = Runtime(
        world.settings,
        database_url=database_url,
        novita_url=simulator.url,
        novita_key=SecretStr(simulator.api_key),
    )

    async with runtime:
        with pytest.raises(StartupProblem, match=r"^no handler for jobs of kind TEST_UNHANDLED$"):
            runtime.work()

        assert not runtime.has_workers
