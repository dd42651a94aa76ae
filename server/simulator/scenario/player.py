"""Plays a scenario: makes its calls at their simulated times."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from server.simulator.requests import JsonObject, ProviderRefusal
from server.simulator.scenario.script import ScenarioStep
from server.simulator.world import World

Action = Callable[[JsonObject, str], object]
# Seconds; the speed may change while it waits.
LOOK_EVERY = 0.25


class ScenarioPlayer:
    """Steps of a time that has passed before the start are not made up for: a restarted world goes on."""

    def __init__(
        self,
        world: World,
        steps: Sequence[ScenarioStep],
        actions: Mapping[tuple[str, str], Action],
        report: Callable[[str], None],
    ) -> None:
        self._world = world
        self._actions = actions
        self._report = report
        started_at = world.clock.now()
        self._steps = [step for step in steps if step.at >= started_at or started_at < 1]

    async def play(self) -> None:
        for step in self._steps:
            while (seconds := self._world.clock.real_seconds_until(step.at)) > 0:  # noqa: ASYNC110 - it waits for a time
                await asyncio.sleep(min(seconds, LOOK_EVERY))
            self._make(step)

    def _make(self, step: ScenarioStep) -> None:
        self._world.advance()
        ids = [each.id for each in self._world.instances.values() if step.matches(each.name)]
        for instance_id in ids if step.instances is not None else [""]:
            try:
                self._actions[step.method, step.path](step.body_for(instance_id), instance_id)
            except ProviderRefusal as refusal:  # such as a reclaim of an instance that does not run
                self._report(f"{step.method} {step.path} {instance_id}: {refusal.message}")
            finally:
                self._world.commit()
