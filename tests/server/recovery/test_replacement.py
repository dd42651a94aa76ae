"""Replacement before a reclaim: another machine takes over while the instance stays READY, whatever is killed."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from server.clock import now
from server.enums import Billing, InstanceStatus, OperationKind, RecoveryTrigger
from server.errors import Invalid
from server.instances.commands.lifecycle import Target, accept
from server.instances.drafts import Port
from server.instances.provider.reconcile import reconcile
from server.instances.recovery.spec import Recovery
from server.novita.client import NovitaClient
from server.queue.kinds import Reconcile
from server.simulator import lifecycle
from tests.server.recovery.test_machines import machines_of
from tests.server.recovery.test_recovery import RECOVERIES, reclaim, recovered, see
from tests.server.recovery.test_steps import DyingCreate, die
from tests.server.spend.test_budgets import LIFETIME, budget
from tests.server.spend.test_quotas import quota, used
from tests.support.accounting import machines_unaccounted
from tests.support.aging import age_all
from tests.support.lifecycle import cancel, hasten, rescue
from tests.support.world import MUMBAI, SINGAPORE, World

S = InstanceStatus
BEFORE = Recovery(allow_data_loss=True, replace_before_reclaim=True)
HTTP = (Port(8080, "http"),)
LONG = 1_000_000  # simulated seconds, almost three hours of ours
NEXT_JOB = "SELECT min(greatest(run_at, due_at)) - clock_timestamp() FROM job WHERE status = 'WAITING'"
OPEN_ENTRIES = "SELECT machine FROM cost_entry WHERE ended_at IS NULL ORDER BY id"


async def ready(world: World, recovery: Recovery = BEFORE, **fields: Any) -> tuple[UUID, str]:
    wish = {"billing": Billing.SPOT, "recovery": recovery, "ports": HTTP, **fields}
    accepted = await world.create("one", **wish)
    await world.work_until_status(accepted.instance.id, S.READY)
    return accepted.instance.id, (await world.instance(accepted.instance.id))["novita_id"]


async def notify(world: World, novita_id: str) -> None:
    """The provider announces the reclaim, and reconcile has seen it."""
    simulated = world.simulator.world
    lifecycle.reclaim(simulated, simulated.instances[novita_id], notice=LONG)
    await see(world)


def end_notice(world: World) -> None:
    """The announced time is there, and what was reclaimed has exited."""
    simulated = world.simulator.world
    simulated.clock.set_now(simulated.clock.now() + LONG)
    simulated.advance()
    hasten(world)


async def replaced(world: World, instance_id: UUID, old: str) -> str:
    async def is_other() -> bool:
        return (await world.instance(instance_id))["novita_id"] != old

    await world.work_until(is_other)
    return (await world.instance(instance_id))["novita_id"]


async def spare_made(world: World) -> str:
    async def is_made() -> bool:
        return bool(await world.value("SELECT count(*) FROM machine WHERE serving_from IS NULL"))

    await world.work_until(is_made)
    return await world.value("SELECT novita_id FROM machine WHERE serving_from IS NULL")


async def drained(world: World, instance_id: UUID) -> None:
    await world.execute("UPDATE machine SET removing_from = now() WHERE removing_from > now()")
    await removed(world, instance_id)


async def removed(world: World, instance_id: UUID) -> None:
    async def is_removed() -> bool:
        return all(each[4] == "REPLACED" for each in await machines_of(world, instance_id) if each[3])

    await world.work_until(is_removed)


async def statuses(world: World, instance_id: UUID) -> list[str]:
    """The status that each event since the first READY shows."""
    shown = [each.data["instance"]["status"] for each in await world.events(instance_id) if "instance" in each.data]
    return shown[shown.index(S.READY) :]


async def test_another_machine_takes_over_while_the_instance_stays_ready(world: World):
    instance_id, old = await ready(world)
    before = await world.instance(instance_id)
    await notify(world, old)

    new = await replaced(world, instance_id, old)

    row = await world.instance(instance_id)
    assert (row["status"], row["ready_at"], row["spot_reclaim_at"]) == (S.READY, before["ready_at"], None)
    assert row["endpoints"] != before["endpoints"]
    assert set(await statuses(world, instance_id)) == {S.READY}
    operation = await world.one("SELECT kind, status, reason, requested_by FROM operation WHERE reason IS NOT NULL")
    assert tuple(operation) == ("START", "SUCCEEDED", "RECOVERY", None)
    moved = [each.data["values"] for each in await world.events(instance_id) if each.type == "instance.relocated"]
    assert moved == [{"from": old, "to": new}]
    assert await machines_of(world, instance_id) == [(1, old, True, True, None), (2, new, True, False, None)]
    await world.hurry()
    await world.work_once()
    assert {each.id for each in world.machines()} == {old, new}  # until it is drained

    await drained(world, instance_id)

    hasten(world)
    assert [each.id for each in world.machines()] == [new]
    assert await machines_unaccounted(world) == []
    assert (await world.instance(instance_id))["status"] == S.READY


async def test_webhook_of_the_instance_gets_the_new_endpoints(world: World):
    """Its status does not change, so no other message has them."""
    instance_id, old = await ready(world, webhook_url="http://127.0.0.1:9/hook")
    await notify(world, old)
    new = await replaced(world, instance_id, old)

    body = await world.value("SELECT body FROM delivery WHERE event_type = 'instance.relocated'")
    message = json.loads(body)["data"]
    assert message["data"] == {"from": old, "to": new}
    (endpoint,) = json.loads((await world.instance(instance_id))["endpoints"])
    assert [each["address"] for each in message["instance"]["endpoints"]] == [endpoint["address"]]
    began = await world.value("SELECT count(*) FROM delivery WHERE event_type = 'recovery.began'")
    assert began == 1


@pytest.mark.parametrize("number", range(1, 8))
async def test_worker_killed_after_any_call_leaves_one_serving_machine_and_no_other(world: World, number: int):
    instance_id, old = await ready(world)
    await notify(world, old)
    calls = 0

    class DyingAt(NovitaClient):
        async def create_instance(self, *args: Any, **options: Any) -> str:
            return counted(await super().create_instance(*args, **options))

        async def instance(self, *args: Any, **options: Any) -> Any:
            return counted(await super().instance(*args, **options))

        async def delete_instance(self, *args: Any, **options: Any) -> None:
            counted(await super().delete_instance(*args, **options))

    def counted(answer: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise asyncio.CancelledError
        return answer

    world.novita.__class__ = DyingAt

    async def is_over() -> bool:
        assert len(world.machines()) <= 2  # by the provider's own count, at every step
        await world.execute("UPDATE machine SET removing_from = now() WHERE removing_from > now()")
        ended = [each[4] for each in await machines_of(world, instance_id)]
        return ended == ["REPLACED", None] and not await world.value(
            "SELECT count(*) FROM operation WHERE status = 'RUNNING'"
        )

    while not await is_over():
        await world.hurry()
        try:
            await world.work_once()
        except asyncio.CancelledError:
            await rescue(world)

    hasten(world)
    row = await world.instance(instance_id)
    assert (row["status"], [each.id for each in world.machines()], world.made()) == (S.READY, [row["novita_id"]], 2)
    assert set(await statuses(world, instance_id)) == {S.READY}
    assert await machines_unaccounted(world) == []
    assert [each["machine"] for each in await world.rows(OPEN_ENTRIES)] == [row["novita_id"]]


async def test_machine_that_ends_first_leaves_the_instance_to_the_other_one(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    new = await spare_made(world)
    end_notice(world)

    assert await replaced(world, instance_id, old) == new
    await world.work_until_status(instance_id, S.READY)

    row = await world.instance(instance_id)
    assert (row["novita_id"], world.made(), await world.value(RECOVERIES)) == (new, 2, 1)
    shown = await statuses(world, instance_id)
    assert [S.EXITED in shown, S.STARTING in shown, shown[-1]] == [True, True, S.READY]
    await removed(world, instance_id)
    hasten(world)
    assert [each.id for each in world.machines()] == [new]


async def test_without_stock_the_machine_ends_as_announced_and_recovery_goes_on(world: World):
    instance_id, old = await ready(world)
    world.stock("*", 0)
    await notify(world, old)

    async def has_failed() -> bool:
        return bool(await world.value("SELECT count(*) FROM operation WHERE status = 'FAILED'"))

    await world.work_until(has_failed)
    assert ((await world.instance(instance_id))["status"], world.made()) == (S.READY, 1)
    world.stock("*", 10)
    await world.hurry()
    await world.work_once()
    assert await world.value(RECOVERIES) == 1  # not before the pause

    end_notice(world)
    await see(world)
    await recovered(world, instance_id)

    assert await machines_unaccounted(world) == []
    assert (await world.instance(instance_id))["status"] == S.READY


async def test_replacement_is_tried_again_after_a_pause(world: World):
    instance_id, old = await ready(world)
    world.stock("*", 0)
    await notify(world, old)

    async def has_failed() -> bool:
        return bool(await world.value("SELECT count(*) FROM operation WHERE status = 'FAILED'"))

    await world.work_until(has_failed)
    world.stock("*", 10)
    await world.configure()
    await world.execute(
        "UPDATE instance SET recovery_state = jsonb_set(recovery_state, '{notice,last}', $1)",
        f'"{(now() - timedelta(hours=1)).isoformat()}"',
    )

    assert await replaced(world, instance_id, old) != old


async def test_cancel_deletes_the_other_machine_and_it_is_not_made_again(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    await spare_made(world)
    operation_id = await world.value("SELECT id FROM operation WHERE reason = 'RECOVERY'")

    await cancel(world, operation_id)

    await removed(world, instance_id)
    hasten(world)
    row = await world.instance(instance_id)
    assert (row["status"], row["novita_id"], [each.id for each in world.machines()]) == (S.READY, old, [old])
    await world.enqueue(Reconcile())
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert (await world.value(RECOVERIES), world.made()) == (1, 2)
    assert await machines_unaccounted(world) == []


async def test_machine_that_is_removed_before_its_first_look_is_in_the_ledger(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    spare = await spare_made(world)
    hasten(world)  # it runs, and nothing has looked at it
    assert await world.value("SELECT count(*) FROM cost_entry WHERE machine = $1", spare) == 0

    await cancel(world, await world.value("SELECT id FROM operation WHERE reason = 'RECOVERY'"))
    await removed(world, instance_id)

    [entry] = await world.rows("SELECT * FROM cost_entry WHERE machine = $1", spare)
    assert (entry["instance_id"], entry["ended_at"] > entry["began_at"]) == (instance_id, True)
    price = await world.value("SELECT price_e5 FROM machine WHERE novita_id = $1", spare)
    assert entry["price_e5"] == price


@pytest.mark.parametrize("kind", [OperationKind.STOP, OperationKind.DELETE])
async def test_stop_and_delete_end_it_and_remove_what_was_made(world: World, kind: OperationKind):
    instance_id, old = await ready(world)
    await notify(world, old)
    await spare_made(world)

    if kind is OperationKind.STOP:
        await accept(world.database, kind, Target(instance_id), by=world.caller)
    else:
        await world.delete(instance_id)
    await world.work_until_status(instance_id, S.EXITED if kind is OperationKind.STOP else S.DELETED)

    await removed(world, instance_id)
    hasten(world)
    assert [each.id for each in world.machines()] == ([old] if kind is OperationKind.STOP else [])
    assert await world.value("SELECT status FROM operation WHERE reason = 'RECOVERY'") == "SUPERSEDED"
    assert await world.rows(OPEN_ENTRIES) == []


async def test_stop_while_a_create_is_unresolved_removes_what_it_made(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    await die(world, DyingCreate)
    assert world.made() == 2

    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, S.EXITED)

    async def is_alone() -> bool:
        hasten(world)
        return [each.id for each in world.machines()] == [old]

    await world.work_until(is_alone)
    assert (await world.instance(instance_id))["novita_id"] == old


async def test_both_machines_are_in_ledger_and_quotas_while_both_are_paid_for(world: World):
    row = await quota(world, max_instances=1)
    instance_id, old = await ready(world)
    await notify(world, old)
    new = await replaced(world, instance_id, old)

    assert {each["machine"] for each in await world.rows(OPEN_ENTRIES)} == {old, new}
    usage = await used(world, row)
    assert (usage.instances, usage.gpus) == (1, 2)
    await world.enqueue(Reconcile())
    await world.hurry()
    await world.work_once()
    assert {each["machine"] for each in await world.rows(OPEN_ENTRIES)} == {old, new}

    await drained(world, instance_id)

    assert [each["machine"] for each in await world.rows(OPEN_ENTRIES)] == [new]
    assert (await used(world, row)).gpus == 1


async def test_replacement_above_the_budget_makes_nothing(world: World):
    instance_id, old = await ready(world, regions=(MUMBAI, SINGAPORE), lifetime=LIFETIME)
    await budget(world, round(1.5 * 16_000 * 10))
    await notify(world, old)

    async def is_refused() -> bool:
        return "recovery.began" in await world.event_types(instance_id)

    await world.work_until(is_refused)

    began = next(each for each in await world.events(instance_id) if each.type == "recovery.began")
    assert began.data["values"] == {"trigger": "RECLAIM", "replaces": old, "refused": "BUDGET_EXCEEDED"}
    assert (await world.value(RECOVERIES), world.made()) == (0, 1)


async def test_nothing_is_replaced_without_the_providers_own_word(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    world.outage()
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert await world.value(RECOVERIES) == 0
    world.faults()
    machine = world.simulator.world.instances[old]
    machine.spot_reclaim_time, machine.spot_status = 0, "running"  # called off
    world.simulator.world.mark_changed(machine)

    for _ in range(3):
        await world.hurry()
        await world.work_once()

    assert (await world.value(RECOVERIES), world.made()) == (0, 1)
    assert (await world.instance(instance_id))["status"] == S.READY


async def test_lost_job_of_a_notice_is_made_again_by_reconcile(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    await world.execute("DELETE FROM job WHERE kind = 'RECOVER_INSTANCE'")

    await world.enqueue(Reconcile())

    assert await replaced(world, instance_id, old) != old


async def test_time_without_service_is_zero_by_the_record_of_a_prober(world: World):
    instance_id, old = await ready(world)
    failures: list[str] = []
    served: set[str] = set()
    is_over = asyncio.Event()

    async def probe() -> None:
        async with aiohttp.ClientSession() as client:
            while not is_over.is_set():
                address = await world.value("SELECT endpoints -> 0 ->> 'address' FROM instance")
                url = address if "://" in address else f"http://{address}"
                try:
                    async with client.get(url, timeout=aiohttp.ClientTimeout(5)) as answer:
                        served.add(address) if answer.status < 400 else failures.append(f"{answer.status}")
                except (TimeoutError, aiohttp.ClientError) as error:
                    failures.append(repr(error))

    prober = asyncio.create_task(probe())
    await notify(world, old)
    new = await spare_made(world)
    world.simulator.world.endpoint_modes[new, 8080] = "badGateway"  # it runs, and does not serve yet
    hasten(world)
    for _ in range(4):
        await world.hurry()
        await world.work_once()
    assert (await world.instance(instance_id))["novita_id"] == old
    del world.simulator.world.endpoint_modes[new, 8080]
    await replaced(world, instance_id, old)
    await drained(world, instance_id)
    end_notice(world)
    row = await world.instance(instance_id)
    is_over.set()
    await prober

    assert (failures, len(served), row["status"]) == ([], 2, S.READY)


async def test_without_it_no_service_is_the_providers_start_and_half_a_minute_at_most(world: World):
    instance_id, machine = await ready(world, Recovery(allow_data_loss=False))
    waited = timedelta(0)  # of which the provider's start takes nothing here
    async with aiohttp.ClientSession() as client:

        async def serves() -> bool:
            address = await world.value("SELECT endpoints -> 0 ->> 'address' FROM instance")
            if address is None:
                return False
            try:
                async with client.get(address if "://" in address else f"http://{address}") as answer:
                    return answer.status < 400
            except aiohttp.ClientError:
                return False

        assert await serves()
        reclaim(world, machine)
        assert not await serves()
        await see(world)
        while not await serves():
            if not await world.work_once():
                pause = max(await world.value(NEXT_JOB), timedelta(milliseconds=1))
                await age_all(world, pause)
                waited += pause
            hasten(world)

    assert waited <= timedelta(seconds=30)
    assert ((await world.instance(instance_id))["novita_id"], world.made()) == (machine, 1)


@pytest.mark.parametrize(
    ("recovery", "code", "field"),
    [
        (Recovery(allow_data_loss=False, replace_before_reclaim=True), "DATA_LOSS_NOT_ALLOWED", "allowDataLoss"),
        (
            Recovery(allow_data_loss=True, replace_before_reclaim=True, on=(RecoveryTrigger.LOSS,)),
            "INVALID_RECOVERY",
            "replaceBeforeReclaim",
        ),
        (Recovery(allow_data_loss=True, drain=timedelta(seconds=-1)), "INVALID_RECOVERY", "drain"),
        (Recovery(allow_data_loss=True, drain=timedelta(seconds=3601)), "INVALID_RECOVERY", "drain"),
    ],
)
async def test_bad_replacement_is_refused_and_nothing_is_written(
    world: World, recovery: Recovery, code: str, field: str
):
    before = await world.counts()

    with pytest.raises(Invalid) as refused:
        await world.create("one", recovery=recovery)

    assert [(each.code, each.path) for each in refused.value.problems] == [(code, ("input", "recovery", field))]
    assert await world.counts() == before


async def test_reconcile_takes_the_other_machine_for_no_orphan(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    new = await spare_made(world)

    report = await reconcile(world.database, world.novita)

    assert (report.machines, dict(report.unlinked)) == (0, {"SECOND": 1})
    assert {each.id for each in world.machines()} == {old, new}
    assert "instance.orphan_found" not in await world.event_types(instance_id)
