"""Any operations in any order with any provider errors: only legal transitions, and every operation ends."""

import asyncio
import itertools
import os
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from server.enums import InstanceStatus, OperationKind
from server.errors import Refused
from server.instances.status import TRANSITIONS
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import ROUTES, ask, cancel, rescue
from tests.support.world import CREATE, World

# More by PILOTLIGHT_EXAMPLES=200; so many fit into every run.
EXAMPLES = int(os.environ.get("PILOTLIGHT_EXAMPLES", "25"))
STEPS = 12
SPOILED = (
    FaultKind.ERROR,
    FaultKind.DROP,
    FaultKind.LOST_ANSWER,
    FaultKind.ERROR_AFTER,
    FaultKind.INVALID_STATE_AFTER,
    FaultKind.RATE_LIMIT,
    FaultKind.PULL_FAILURE,
)

T = TypeVar("T")


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * EXAMPLES)
@pytest.mark.usefixtures("quick_polls")
async def test_any_sequence_of_operations_makes_only_legal_transitions_and_ends(world: World):
    loop = asyncio.get_running_loop()
    await world.configure(max_retry_attempts=3)
    numbers = itertools.count()
    refusals: list[str] = []

    class Sequence(RuleBasedStateMachine):
        """One instance; its rules run on the test's own loop, from another thread."""

        def __init__(self) -> None:
            super().__init__()
            self.operations: list[UUID] = []
            self.id = UUID(int=0)

        def run_(self, work: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=60)

        @initialize(is_ready=st.booleans())
        def create(self, is_ready: bool) -> None:
            self.run_(world.catalog.forget_product("as-sgp-2", "spot", "26", gpu_count=1))
            accepted = self.run_(world.create(f"s{next(numbers)}"))
            self.id = accepted.instance.id
            self.operations.append(accepted.operation.id)
            if is_ready:
                self.run_(world.work_until_over(accepted.operation.id))

        @rule(kind=st.sampled_from(list(ROUTES)))
        def operate(self, kind: OperationKind) -> None:
            try:
                self.operations.append(self.run_(ask(world, kind, self.id)).operation.id)
            except Refused as refused:
                refusals.append(refused.code)

        @rule(rounds=st.integers(1, 8))
        def work(self, rounds: int) -> None:
            for _ in range(rounds):
                self.run_(self.one_round())

        async def one_round(self) -> None:
            await world.hurry()
            await world.work_once()

        @rule(kind=st.sampled_from(SPOILED), route=st.sampled_from([*ROUTES.values(), CREATE, "*"]))
        def spoil(self, kind: FaultKind, route: str) -> None:
            world.faults(Fault(kind, (route,), times=1))

        @rule(free=st.sampled_from([0, 8]))
        def stock(self, free: int) -> None:
            world.stock("*", free)

        @rule()
        def outage(self) -> None:
            world.outage()

        @rule()
        def heal(self) -> None:
            world.faults()

        @rule()
        def lose_the_worker(self) -> None:
            self.run_(rescue(world))

        @rule()
        def cancel_the_last(self) -> None:
            try:
                done = self.run_(cancel(world, self.operations[-1]))
            except Refused as refused:
                refusals.append(refused.code)
            else:
                self.operations += [done.clean_up.id] if done.clean_up else []

        @rule()
        def delete(self) -> None:
            try:
                self.operations.append(self.run_(world.delete(self.id)))
            except Refused as refused:
                refusals.append(refused.code)

        def teardown(self) -> None:
            if self.operations:
                self.run_(check(world, self.id))

    await asyncio.to_thread(
        run_state_machine_as_test,
        Sequence,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

    assert {"OPERATION_IN_PROGRESS", "NOT_CANCELLABLE"} <= set(refusals)  # the sequences did include refusals


async def check(world: World, instance_id: UUID) -> None:
    world.faults()
    world.stock("*", 8)

    async def is_quiet() -> bool:
        # Unanswered calls are made old enough not to be waited for.
        await world.execute("UPDATE operation SET asked_at = asked_at - interval '5 minutes' WHERE finished_at IS NULL")
        await world.age_attempts()
        return await world.value("SELECT count(*) FROM job") == 0

    await world.work_until(is_quiet)
    assert await world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL") == 0

    status, version = None, 0
    for event in await world.events(instance_id):
        if "instance" not in event.data:
            continue
        assert event.data["instance"]["version"] == version + 1
        version += 1
        if "to" in event.data:
            before, after = event.data["from"], event.data["to"]
            assert before == status
            assert status is None or InstanceStatus(after) in TRANSITIONS[InstanceStatus(before)]
            status = after
    row = await world.instance(instance_id)
    assert (row["status"], row["version"]) == (status, version)
    assert status in ("READY", "EXITED", "FAILED", "DELETED")
    assert world.made(f"{row['name']}-") <= 1
    theirs = [machine for machine in world.machines() if machine.name.startswith(f"{row['name']}-")]
    assert len(theirs) <= (0 if status == "DELETED" else 1)
