"""Starts by steps: the same machine, another node, a new machine; refusals lead on, and a kill never makes two."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from server.enums import Billing, InstanceStatus, OperationKind, StartStep
from server.errors import IllegalTransition, Invalid, NotCancellable
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.retry import retry_operation
from server.instances.drafts import StartDraft
from server.instances.idempotency import Accepted
from server.instances.provider.reconcile import reconcile
from server.instances.recovery.spec import Recovery
from server.novita.client import NovitaClient
from server.recovery.relocation import Wanted, highest_price
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from tests.server.recovery.test_machines import machines_of
from tests.support.accounting import machines_unaccounted
from tests.support.api import Api
from tests.support.lifecycle import MIGRATE, START, Dying, cancel, hasten, rescue
from tests.support.world import CREATE, World

S = InstanceStatus
RETRY = "mutation ($id: ID!) { retryOperation(input: {id: $id}) { operation { id } errors { code message } } }"
ALL = (StartStep.SAME, StartStep.MIGRATE, StartStep.RELOCATE)


async def stopped(world: World, name: str = "one", **fields: Any) -> tuple[UUID, str]:
    """An EXITED instance that a create has made, and its machine."""
    accepted = await world.create(name, billing=Billing.ON_DEMAND, **fields)
    instance_id = accepted.instance.id
    await world.work_until_status(instance_id, S.READY)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, S.EXITED)
    return instance_id, (await world.instance(instance_id))["novita_id"]


async def start(world: World, instance_id: UUID, *steps: StartStep, **options: Any) -> Accepted:
    draft = StartDraft(steps=steps or ALL, allow_data_loss=True)
    return await accept(
        world.database,
        OperationKind.START,
        Target(instance_id),
        by=world.caller,
        draft=draft,
        highest_price=lambda row: highest_price(world.catalog, row, draft.steps, Wanted()),
        **options,
    )


async def steps_of(world: World, instance_id: UUID) -> list[dict[str, str]]:
    events = await world.events(instance_id)
    return [event.data["values"] for event in events if event.type == "recovery.step"]


async def taken(world: World, instance_id: UUID) -> list[str]:
    return [values["step"] for values in await steps_of(world, instance_id)]


def cluster_of(world: World, novita_id: str) -> str:
    return world.simulator.world.instances[novita_id].cluster_id


def lose(world: World, novita_id: str) -> None:
    simulated = world.simulator.world
    lifecycle.lose(simulated, simulated.instances[novita_id])


async def gone(world: World, instance_id: UUID, novita_id: str) -> None:
    """Its machine is lost, and reconcile has confirmed it."""
    lose(world, novita_id)

    async def is_known() -> bool:
        await reconcile(world.database, world.novita, gone_grace=world.settings.gone_grace)
        return (await world.instance(instance_id))["status"] == S.FAILED

    await world.work_until(is_known)


async def test_same_machine_is_started_and_no_other_step_is_taken(world: World):
    instance_id, machine = await stopped(world)

    accepted = await start(world, instance_id)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["kind"], operation["status"]) == ("START", "SUCCEEDED")
    assert await taken(world, instance_id) == ["SAME"]
    row = await world.instance(instance_id)
    assert (row["status"], row["novita_id"]) == (S.READY, machine)
    assert (world.calls(START), world.calls(MIGRATE), world.made()) == (1, 0, 1)


async def test_full_host_is_left_by_a_migration(world: World):
    instance_id, machine = await stopped(world)
    world.faults(Fault(FaultKind.ERROR, routes=(START,), times=1, status=400, reason="INSUFFICIENT_RESOURCE"))

    operation = await world.work_until_over((await start(world, instance_id)).operation.id)

    assert operation["status"] == "SUCCEEDED"
    first, second = await steps_of(world, instance_id)
    assert first == {"step": "SAME"}
    assert (second["step"], second["refused"], second["code"]) == ("MIGRATE", "SAME", "RESOURCE_CONSTRAINTS")
    assert (await world.instance(instance_id))["novita_id"] == machine
    assert (world.calls(START), world.calls(MIGRATE), world.made()) == (1, 1, 1)


async def test_full_region_is_left_by_a_new_machine_and_the_old_one_is_removed(world: World):
    instance_id, old = await stopped(world)
    old_region = (await world.instance(instance_id))["region"]
    world.stock(cluster_of(world, old), 0)

    operation = await world.work_until_over((await start(world, instance_id)).operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert await taken(world, instance_id) == ["SAME", "MIGRATE", "RELOCATE"]
    row = await world.instance(instance_id)
    assert row["status"] == S.READY
    assert (row["novita_id"] != old, row["region"] != old_region, world.made()) == (True, True, 2)
    moved = [each.data["values"] for each in await world.events(instance_id) if each.type == "instance.relocated"]
    assert moved == [{"from": old, "to": row["novita_id"]}]
    assert dict(world.simulator.world.instances[row["novita_id"]].envs)["PILOTLIGHT_MACHINE"] == "2"

    async def is_removed() -> bool:
        return [each[4] for each in await machines_of(world, instance_id)] == ["REPLACED", None]

    await world.work_until(is_removed)
    hasten(world)
    assert [each.id for each in world.machines()] == [row["novita_id"]]
    assert await machines_unaccounted(world) == []


async def test_refusal_of_every_step_returns_the_instance_to_exited(world: World):
    instance_id, machine = await stopped(world)
    world.stock("*", 0)

    operation = await world.work_until_over((await start(world, instance_id)).operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "NO_OPTIMAL_PRODUCT_ANY_REGION")
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["novita_id"]) == (S.EXITED, operation["error_code"], machine)
    assert (world.made(), len(world.machines())) == (1, 1)


async def test_lost_machine_is_replaced_by_a_caller_with_relocate_only(world: World):
    instance_id, old = await stopped(world)
    await gone(world, instance_id, old)
    before = await world.counts()

    with pytest.raises(IllegalTransition):
        await start(world, instance_id, StartStep.SAME)
    with pytest.raises(IllegalTransition):
        await start(world, instance_id, StartStep.SAME, StartStep.MIGRATE)
    assert await world.counts() == before

    operation = await world.work_until_over((await start(world, instance_id)).operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert await taken(world, instance_id) == ["RELOCATE"]
    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"]) == (S.READY, None)
    assert await machines_of(world, instance_id) == [
        (1, old, True, False, "GONE_AT_PROVIDER"),
        (2, row["novita_id"], True, False, None),
    ]


async def test_failed_relocation_of_a_lost_machine_leaves_it_known_to_be_gone(world: World):
    instance_id, old = await stopped(world)
    await gone(world, instance_id, old)
    world.stock("*", 0)

    operation = await world.work_until_over((await start(world, instance_id)).operation.id)

    assert operation["status"] == "FAILED"
    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"], row["novita_id"]) == (S.FAILED, "GONE_AT_PROVIDER", old)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_failed_start_by_steps_takes_its_steps_again(world: World, is_lost: bool):
    instance_id, old = await stopped(world)
    cluster = cluster_of(world, old)
    if is_lost:
        await gone(world, instance_id, old)
    world.stock("*", 0)
    failed = await world.work_until_over((await start(world, instance_id)).operation.id)
    assert (failed["status"], failed["error_retryable"]) == ("FAILED", True)
    before = await taken(world, instance_id)
    world.stock("*", 10)
    world.stock(cluster, 0)
    await world.configure()

    again = await retry_operation(
        world.database,
        failed["id"],
        by=world.caller,
        highest_price=lambda row, _failed, steps: highest_price(world.catalog, row, steps, Wanted()),
    )

    await world.work_until_over(again.operation.id)
    assert await taken(world, instance_id) == before * 2
    row = await world.instance(instance_id)
    assert (row["status"], row["novita_id"] != old) == (S.READY, True)


async def test_retry_by_the_api_is_admitted_at_the_dearest_candidate(api: Api):
    world = api.world
    instance_id, _ = await stopped(world)
    refusal = Fault(FaultKind.ERROR, (START, MIGRATE, CREATE), status=400, reason="INSUFFICIENT_RESOURCE")
    world.faults(refusal)
    failed = await world.work_until_over((await start(world, instance_id)).operation.id)
    world.faults()

    answer = (await api.ask(RETRY, id=f"op_{failed['id'].hex}")).data["retryOperation"]

    assert (failed["status"], answer["errors"]) == ("FAILED", [])
    again = await world.operation(UUID(answer["operation"]["id"].removeprefix("op_")))
    assert (again["wanted"], again["reserved_price_e5"]) == (failed["wanted"], failed["reserved_price_e5"])
    assert (await world.work_until_over(again["id"]))["status"] == "SUCCEEDED"
    await world.delete(instance_id)
    await world.work_until_status(instance_id, S.DELETED)


@pytest.mark.parametrize("recovery", [None, Recovery(allow_data_loss=True)])
async def test_cancelled_start_whose_machine_is_gone_leaves_it_known_to_be(world: World, recovery: Recovery | None):
    """The first step finds that out; the next one has not called the provider yet."""
    instance_id, old = await stopped(world, recovery=recovery)
    lose(world, old)
    accepted = await start(world, instance_id)

    async def is_to_relocate() -> bool:
        return await taken(world, instance_id) == ["SAME", "RELOCATE"]

    await world.work_until(is_to_relocate)
    await cancel(world, accepted.operation.id)

    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"], row["status_reason"]) == (S.FAILED, "GONE_AT_PROVIDER", "CANCELLED")
    await world.hurry()
    await world.work_once()
    assert (await world.value("SELECT count(*) FROM operation WHERE kind = 'START'"), world.made()) == (1, 1)
    again = await world.work_until_over((await start(world, instance_id)).operation.id)
    assert (again["status"], (await world.instance(instance_id))["status"]) == ("SUCCEEDED", S.READY)


@pytest.mark.parametrize(
    ("steps", "allowed", "code"),
    [
        ((StartStep.MIGRATE,), False, "DATA_LOSS_NOT_ALLOWED"),
        ((StartStep.SAME, StartStep.RELOCATE), False, "DATA_LOSS_NOT_ALLOWED"),
        ((), True, "INVALID_RECOVERY"),
        ((StartStep.SAME, StartStep.SAME), True, "INVALID_RECOVERY"),
        ((StartStep.OTHER,), True, "INVALID_RECOVERY"),
    ],
)
async def test_steps_that_lose_data_or_make_no_sense_are_refused(
    world: World, steps: tuple[StartStep, ...], allowed: bool, code: str
):
    draft = StartDraft(steps=steps, allow_data_loss=allowed)

    with pytest.raises(Invalid) as refused:
        draft.check(world.settings.allow_private_webhooks)

    assert [problem.code for problem in refused.value.problems] == [code]


class DyingCreate(NovitaClient):
    """Its process ends right after the provider has made a machine."""

    async def create_instance(self, *args: Any, **options: Any) -> str:
        await super().create_instance(*args, **options)
        raise asyncio.CancelledError


async def die(world: World, dying: type[NovitaClient]) -> None:
    """Work in a process that ends in the middle of a call."""
    world.novita.__class__ = dying
    try:
        for _ in range(20):
            await world.hurry()
            await world.work_once()
    except asyncio.CancelledError:
        pass
    else:
        pytest.fail("no call was made")
    world.novita.__class__ = NovitaClient
    await rescue(world)


async def test_worker_killed_between_a_create_and_its_answer_leaves_one_new_machine(world: World):
    instance_id, old = await stopped(world)
    world.stock(cluster_of(world, old), 0)
    accepted = await start(world, instance_id)
    await die(world, DyingCreate)
    assert [row["status"] for row in await world.rows("SELECT status FROM attempt ORDER BY created_at")][-1] == "ASKING"
    assert (await world.instance(instance_id))["novita_id"] == old
    report = await reconcile(world.database, world.novita)
    assert (dict(report.unlinked), await machines_unaccounted(world)) == ({"IN_DOUBT": 1}, [])

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], world.made()) == ("SUCCEEDED", 2)

    async def is_removed() -> bool:
        return [each[4] for each in await machines_of(world, instance_id)] == ["REPLACED", None]

    await world.work_until(is_removed)
    assert await machines_unaccounted(world) == []


@pytest.mark.parametrize("refuse_start", [False, True])
async def test_worker_killed_during_a_start_or_a_migration_repeats_nothing(world: World, refuse_start: bool):
    instance_id, machine = await stopped(world)
    if refuse_start:
        world.faults(Fault(FaultKind.ERROR, routes=(START,), times=1, status=400, reason="INSUFFICIENT_RESOURCE"))
    accepted = await start(world, instance_id)
    await die(world, Dying)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], world.made()) == ("SUCCEEDED", 1)
    assert (world.calls(START), world.calls(MIGRATE)) == (1, 1 if refuse_start else 0)
    assert (await world.instance(instance_id))["novita_id"] == machine


async def test_relocation_in_doubt_can_not_be_cancelled_but_deleted_with_both_machines(world: World):
    instance_id, old = await stopped(world)
    world.stock(cluster_of(world, old), 0)
    accepted = await start(world, instance_id)
    await die(world, DyingCreate)

    with pytest.raises(NotCancellable):
        await cancel(world, accepted.operation.id)

    await world.delete(instance_id)
    await world.work_until_status(instance_id, S.DELETED)

    async def are_gone() -> bool:
        return world.machines() == []

    await world.work_until(are_gone)
    assert [each[4] for each in await machines_of(world, instance_id)] == ["REPLACED", "DELETED"]
    assert "instance.orphan_found" not in await world.event_types(instance_id)


async def test_outage_during_a_relocation_in_doubt_ends_the_start_and_removes_what_it_made(world: World):
    instance_id, old = await stopped(world)
    world.stock(cluster_of(world, old), 0)
    accepted = await start(world, instance_id)
    await die(world, DyingCreate)
    world.outage()
    await world.execute("UPDATE operation SET created_at = created_at - interval '2 hours'")

    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "FAILED"
    assert (await world.instance(instance_id))["novita_id"] == old
    world.faults()

    async def is_settled() -> bool:
        return [each.id for each in world.machines()] == [old]

    await world.work_until(is_settled)
    assert await world.value("SELECT count(*) FROM attempt WHERE status IN ('ASKING', 'UNKNOWN')") == 0
