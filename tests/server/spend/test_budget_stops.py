"""A used-up budget with STOP does not wait for open operations: they end, and machines stop as soon as they can."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from server.enums import BudgetAction, BudgetPeriod, InstanceStatus, OperationKind
from server.instances.commands.lifecycle import Target
from server.instances.commands.upgrade import UpgradeDraft, upgrade_instance
from server.novita.client import NovitaClient
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from tests.server.spend.test_check_budgets import budget, check
from tests.support.lifecycle import MIGRATE, RESTART, START, STOP, age, ask, changes, hasten, machine
from tests.support.world import World

S = InstanceStatus
K = OperationKind
BEGUN = (
    "SELECT kind, status, reason, error_code FROM operation WHERE kind NOT IN ('CREATE', 'DELETE') ORDER BY created_at"
)
ELSEWHERE = "UPDATE job SET run_at = run_at + interval '1 hour', due_at = due_at + interval '1 hour'"


async def ready(world: World, *, is_down: bool = False, **fields: Any) -> UUID:
    """An instance whose machine has run for an hour; from now on the provider takes its time."""
    one = (await world.create("one", **fields)).instance.id
    await world.work_until_status(one, S.READY)
    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '1 hour'")
    if is_down:
        await world.work_until_over((await ask(world, K.STOP, one)).operation.id)
        await world.execute("DELETE FROM operation WHERE kind = 'STOP'")
    world.simulator.world.calls.clear()
    world.simulator.world.clock.set_speed(0.001)
    return one


async def begin(world: World, kind: str, one: UUID) -> UUID:
    if kind != "UPGRADE":
        return (await ask(world, K(kind), one)).operation.id
    draft = UpgradeDraft(image="nginx:2")
    return (await upgrade_instance(world.database, world.catalog, Target(one), draft, by=world.caller)).operation.id


async def use_up(world: World, one: UUID) -> int:
    """A budget that the machine uses up within the next two minutes; returns what may be spent at most."""
    price = (await world.instance(one))["price_per_hour_e5"] * 10
    await budget(world, price + price // 60, action=BudgetAction.STOP, period=BudgetPeriod.TOTAL)
    await check(world)
    return int(price + price // 60 + price * timedelta(minutes=2) / timedelta(hours=1))


async def begun(world: World) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await world.rows(BEGUN)]


async def is_stopped(world: World, one: UUID, at_most: int) -> None:
    """And stays so, also when the jobs of the operation that was ended run again."""
    world.simulator.world.clock.set_speed(100)
    hasten(world)
    await world.work_until_status(one, S.EXITED)
    await world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE instance_id IS NOT NULL")
    await world.work_once()
    hasten(world)

    row = await world.instance(one)
    assert (row["status"], machine(world).status) == ("EXITED", "exited")
    assert await world.value("SELECT sum(amount_micros) FROM cost_entry WHERE ended_at IS NOT NULL") <= at_most
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 0
    assert (await begun(world))[-1][:3] == ("STOP", "SUCCEEDED", "BUDGET")
    assert world.calls(STOP) == 1


@pytest.mark.parametrize("kind", ["START", "RESTART", "MIGRATE", "UPGRADE"])
async def test_machine_on_its_way_up_is_stopped_once_it_runs(world: World, kind: str):
    one = await ready(world, is_down=kind == "START")
    operation = await begin(world, kind, one)

    async def is_coming_up() -> bool:
        if kind == "START" and machine(world).status == "toStart":  # which is not paid for
            world.simulator.world.clock.set_now(world.simulator.world.clock.now() + 0.6)
            world.simulator.world.advance()
        row = await world.instance(one)
        return row["novita_status"] in ("starting", "toRestart", "migrating", "toReset")

    await world.work_until(is_coming_up)
    await world.execute(ELSEWHERE)  # its own jobs run elsewhere
    at_most = await use_up(world, one)

    row = await world.instance(one)
    assert (row["status"], row["status_reason"]) == ("STOPPING", "BUDGET")
    ended, stop = await begun(world)
    assert ended[1:] == ("FAILED", None, "BUDGET_EXCEEDED")
    assert (stop[0], stop[2]) == ("STOP", "BUDGET")
    assert (await world.operation(operation))["error_message"].startswith("The budget all is used up")
    await world.hurry()
    await world.work_once()
    assert world.calls(STOP) == 0  # the provider refuses it meanwhile
    await is_stopped(world, one, at_most)


@pytest.mark.parametrize("kind", ["RESTART", "MIGRATE", "UPDATE", "UPGRADE"])
async def test_operation_for_which_the_provider_was_not_called_is_not_carried_out(world: World, kind: str):
    one = await ready(world)
    await begin(world, kind, one)
    await world.execute(ELSEWHERE)

    at_most = await use_up(world, one)

    assert [each[0] for each in await begun(world)] == ["UPDATE" if kind == "UPGRADE" else kind, "STOP"]
    assert (await begun(world))[0][1:] == ("FAILED", None, "BUDGET_EXCEEDED")
    assert await world.value("SELECT asked_at FROM operation WHERE error_code = 'BUDGET_EXCEEDED'") is None
    await world.work_until(lambda: _is_called(world, STOP))
    await is_stopped(world, one, at_most)
    assert changes(world) == {STOP: 1}


async def _is_called(world: World, route: str) -> bool:
    return world.calls(route) > 0


async def test_restart_whose_endpoints_are_being_checked(world: World):
    one = await ready(world)
    await begin(world, "RESTART", one)
    await world.execute(ELSEWHERE)
    await world.execute(
        """UPDATE operation SET status = 'RUNNING', phase = 'CHECKING_HEALTH', asked_at = now(), started_at = now(),
                                before = before || '{"run": "the one before"}'
           WHERE kind = 'RESTART';
           UPDATE instance SET status = 'HEALTH_CHECKING', running_at = now()"""
    )

    at_most = await use_up(world, one)

    assert (await begun(world))[0] == ("RESTART", "FAILED", None, "BUDGET_EXCEEDED")
    await world.work_until(lambda: _is_called(world, STOP))
    await is_stopped(world, one, at_most)
    assert changes(world) == {STOP: 1}


@pytest.mark.parametrize(("kind", "route"), [("RESTART", RESTART), ("MIGRATE", MIGRATE)])
async def test_call_that_is_under_way_is_waited_for(world: World, kind: str, route: str):
    one = await ready(world)
    found: list[int] = []

    class Meanwhile(NovitaClient):
        async def restart_instance(self, *args: Any, **options: Any) -> None:
            await self.meanwhile()
            await super().restart_instance(*args, **options)

        async def migrate_instance(self, *args: Any, **options: Any) -> None:
            await self.meanwhile()
            await super().migrate_instance(*args, **options)

        async def meanwhile(self) -> None:
            found.append(await use_up(world, one))
            await world.hurry()
            await world.work_once()
            assert [each[0] for each in await begun(world)] == [kind, "STOP"]
            assert world.calls(STOP) == 0

    world.novita.__class__ = Meanwhile
    await begin(world, kind, one)
    await world.work_until(lambda: _is_called(world, route))
    await world.work_once()

    await is_stopped(world, one, found[0])
    assert world.calls(route) == 1


async def test_start_that_arrives_late_is_stopped(world: World):
    one = await ready(world, is_down=True)
    world.faults(Fault(FaultKind.DROP, (START,), times=1))
    operation = await begin(world, "START", one)
    await world.work_until(lambda: _is_called(world, START))
    # It was seen running by another process.
    await world.execute(
        """INSERT INTO cost_entry (project_id, instance_id, machine, labels, price_e5, product_name, region,
                                   run_began_at, began_at)
           SELECT project_id, id, novita_id, labels, price_per_hour_e5, product_name, region, now(), now()
           FROM instance;
           UPDATE instance SET novita_status = 'starting'"""
    )
    at_most = await use_up(world, one)
    assert (await world.operation(operation))["error_code"] == "BUDGET_EXCEEDED"
    await world.hurry()
    await world.work_once()
    assert (await world.instance(one))["status"] == "STOPPING"

    lifecycle.start(world.simulator.world, machine(world))

    await is_stopped(world, one, at_most)


@pytest.mark.parametrize("kind", ["UPDATE", "UPGRADE"])
async def test_change_of_the_machine_is_waited_for_at_most_a_minute(world: World, kind: str):
    one = await ready(world)
    if kind == "UPGRADE":  # without a response, it is found out whether it was done
        world.faults(Fault(FaultKind.DROP, ("POST /gpu/instance/upgrade",), times=1))
    operation = await begin(world, kind, one)

    async def is_asked() -> bool:
        return (await world.operation(operation))["asked_at"] is not None

    await world.work_until(is_asked)
    await world.execute(ELSEWHERE)
    at_most = await use_up(world, one)
    assert len(await begun(world)) == 1

    await age(world, operation, 61)
    await check(world)

    assert (await begun(world))[0][1:] == ("FAILED", None, "BUDGET_EXCEEDED")
    await world.work_until(lambda: _is_called(world, STOP))
    await is_stopped(world, one, at_most)


async def test_open_attempt_of_a_recovery_ends_the_recovery(world: World):
    one = await ready(world)
    await begin(world, "RESTART", one)
    await world.execute(
        """UPDATE instance SET recovery = '{"on": ["RECLAIM"], "drain": "PT2S", "billing": "SAME",
               "give_up_after": "PT2M", "allow_data_loss": true, "replace_before_reclaim": false}',
               recovery_state = jsonb_build_object('since', now(), 'trigger', 'RECLAIM', 'now', 1)"""
    )
    await world.execute(ELSEWHERE)

    await use_up(world, one)

    assert await world.value("SELECT recovery_state ->> 'ended' FROM instance") == "STOPPED"


async def test_open_stop_of_a_caller_is_left_alone(world: World):
    one = await ready(world)
    await begin(world, "STOP", one)
    await world.execute(ELSEWHERE)

    await use_up(world, one)

    assert [each[:3] for each in await begun(world)] == [("STOP", "QUEUED", None)]
