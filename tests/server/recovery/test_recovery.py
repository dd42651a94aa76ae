"""Recovery: an instance comes back under its own id after a reclaim or a loss, and never for another reason."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from server.clock import now
from server.db.tables import Instance
from server.enums import Billing, InstanceStatus, OperationKind, RecoveryBilling, RecoveryTrigger, StartStep
from server.errors import Invalid
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.provider.reconcile import reconcile
from server.instances.recovery import incident, notice
from server.instances.recovery.spec import Recovery, RecoveryChange, read
from server.observe import metrics
from server.queue.kinds import Reconcile
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from tests.server.recovery.test_machines import machines_of
from tests.server.recovery.test_steps import cluster_of, gone, lose, steps_of, taken
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import MIGRATE, START, cancel, hasten
from tests.support.world import World

S = InstanceStatus
ALL = Recovery(allow_data_loss=True)
SAME_ONLY = Recovery(allow_data_loss=False)
RECOVERIES = "SELECT count(*) FROM operation WHERE reason = 'RECOVERY'"


async def ready(world: World, recovery: Recovery | None = ALL, **fields: Any) -> tuple[UUID, str]:
    """A READY spot instance, and its machine."""
    accepted = await world.create("one", billing=Billing.SPOT, recovery=recovery, **fields)
    await world.work_until_status(accepted.instance.id, S.READY)
    return accepted.instance.id, (await world.instance(accepted.instance.id))["novita_id"]


def reclaim(world: World, novita_id: str) -> None:
    """The machine is reclaimed, without waiting for the end of the notice."""
    simulated = world.simulator.world
    lifecycle.reclaim(simulated, simulated.instances[novita_id], notice=0)
    hasten(world)


async def see(world: World) -> None:
    await reconcile(world.database, world.novita, gone_grace=world.settings.gone_grace)


async def recovered(world: World, instance_id: UUID) -> None:
    async def is_ready() -> bool:
        return (await world.value(RECOVERIES)) and (await world.instance(instance_id))["status"] == S.READY

    await world.work_until(is_ready)


async def start_attempt(world: World) -> None:
    async def has_begun() -> bool:
        return bool(await world.value(RECOVERIES))

    await world.work_until(has_begun)


async def row_of(world: World, instance_id: UUID) -> Instance:
    async with world.database.read() as session:
        return await session.get_one(Instance, instance_id)


async def test_reclaimed_machine_is_started_again_without_a_caller(world: World):
    instance_id, machine = await ready(world, SAME_ONLY)
    reclaim(world, machine)
    await see(world)
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == (S.EXITED, "SPOT_RECLAIMED")

    await recovered(world, instance_id)

    operation = await world.one("SELECT kind, status, requested_by, reason FROM operation WHERE reason IS NOT NULL")
    assert tuple(operation) == ("START", "SUCCEEDED", None, "RECOVERY")
    assert await taken(world, instance_id) == ["SAME"]
    types = await world.event_types(instance_id)
    assert types.count("recovery.began") == 1
    assert "recovery.gave_up" not in types
    assert (world.made(), world.calls(START), world.calls(MIGRATE)) == (1, 1, 0)
    state = (await row_of(world, instance_id)).recovery_state
    assert state is not None
    assert list(state) == ["tries"]


async def test_reclaimed_machine_that_does_not_start_is_migrated(world: World):
    instance_id, machine = await ready(world)
    can_start(world, False)
    reclaim(world, machine)
    await see(world)

    await recovered(world, instance_id)

    assert [values["step"] for values in await steps_of(world, instance_id)] == ["SAME", "MIGRATE"]
    assert ((await world.instance(instance_id))["novita_id"], world.made()) == (machine, 1)


async def test_reclaiming_region_is_left_when_it_is_full(world: World):
    instance_id, old = await ready(world)
    region = (await world.instance(instance_id))["region"]
    reclaim(world, old)
    world.stock(cluster_of(world, old), 0)
    await see(world)

    await recovered(world, instance_id)

    row = await world.instance(instance_id)
    assert row["region"] != region

    async def is_removed() -> bool:
        return [each[4] for each in await machines_of(world, instance_id)] == ["REPLACED", None]

    await world.work_until(is_removed)
    hasten(world)
    assert [each.id for each in world.machines()] == [row["novita_id"]]
    assert await machines_unaccounted(world) == []


async def test_reclaiming_region_is_tried_last_for_an_hour(world: World):
    instance_id, old = await ready(world, Recovery(allow_data_loss=True, steps=(StartStep.RELOCATE,)))
    region = (await world.instance(instance_id))["region"]
    reclaim(world, old)
    await see(world)

    await recovered(world, instance_id)

    assert (await world.instance(instance_id))["region"] != region


async def test_on_demand_follows_when_no_spot_candidate_accepts(world: World):
    recovery = Recovery(allow_data_loss=True, steps=(StartStep.RELOCATE,), billing=RecoveryBilling.ON_DEMAND_AFTER)
    instance_id, old = await ready(world, recovery)
    products = world.simulator.world.catalog.products
    for id, product in list(products.items()):
        products[id] = replace(product, spot_price=0)
    await world.configure()  # without cached prices
    reclaim(world, old)
    await see(world)

    await recovered(world, instance_id)

    assert (await world.instance(instance_id))["billing_mode"] == "onDemand"


async def test_lost_machine_is_replaced(world: World):
    instance_id, old = await ready(world)
    await gone(world, instance_id, old)
    assert (await world.instance(instance_id))["failure_code"] == "GONE_AT_PROVIDER"

    await recovered(world, instance_id)

    row = await world.instance(instance_id)
    assert (row["failure_code"], world.made()) == (None, 2)
    assert await taken(world, instance_id) == ["RELOCATE"]
    assert await machines_of(world, instance_id) == [
        (1, old, True, False, "GONE_AT_PROVIDER"),
        (2, row["novita_id"], True, False, None),
    ]


async def test_attempts_relocations_and_those_that_were_given_up_are_counted(world: World):
    def counts() -> tuple[float, ...]:
        given_up = metrics.RECOVERIES_GIVEN_UP.of("NO_START_STEP")
        return metrics.RECOVERY_ATTEMPTS.of("LOSS", "BEGAN"), metrics.RELOCATIONS.of(), given_up

    before = counts()
    instance_id, old = await ready(world)
    await gone(world, instance_id, old)
    await recovered(world, instance_id)
    await update_instance(
        world.database, Target(instance_id), UpdateDraft(recovery=RecoveryChange(SAME_ONLY)), by=world.caller
    )
    await gone(world, instance_id, (await world.instance(instance_id))["novita_id"])
    await world.execute("UPDATE instance SET status_since = status_since - interval '1 minute'")  # the pause is over

    async def has_given_up() -> bool:
        return "recovery.gave_up" in await world.event_types(instance_id)

    await world.work_until(has_given_up)

    assert tuple(now - then for now, then in zip(counts(), before, strict=True)) == (1, 1, 1)


async def test_lost_machine_without_allowed_data_loss_is_given_up_at_once(world: World):
    instance_id, old = await ready(world, SAME_ONLY)
    await gone(world, instance_id, old)

    async def has_given_up() -> bool:
        return "recovery.gave_up" in await world.event_types(instance_id)

    await world.work_until(has_given_up)

    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["failure_code"]) == (
        S.FAILED,
        "RECOVERY_GAVE_UP",
        "GONE_AT_PROVIDER",
    )
    assert (await world.value(RECOVERIES), world.made()) == (0, 1)


@pytest.mark.parametrize("on", [(RecoveryTrigger.RECLAIM,), (RecoveryTrigger.LOSS,)])
async def test_only_the_chosen_triggers_count(world: World, on: tuple[RecoveryTrigger, ...]):
    instance_id, machine = await ready(world, Recovery(allow_data_loss=True, on=on))
    if on == (RecoveryTrigger.LOSS,):
        reclaim(world, machine)
        await see(world)
    else:
        await gone(world, instance_id, machine)

    await world.hurry()
    await world.work_once()

    assert await world.value("SELECT count(*) FROM job WHERE kind = 'RECOVER_INSTANCE'") == 0
    assert (await world.value(RECOVERIES), world.made()) == (0, 1)


async def test_machine_that_was_stopped_on_purpose_is_not_replaced_when_it_is_gone(world: World):
    instance_id, machine = await ready(world)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, S.EXITED)

    await gone(world, instance_id, machine)
    await world.hurry()
    await world.work_once()

    assert (await world.value(RECOVERIES), world.made()) == (0, 1)


async def test_stop_in_the_console_between_notice_and_reclaim_is_no_reclaim(world: World):
    instance_id, machine = await ready(world)
    simulated = world.simulator.world
    lifecycle.reclaim(simulated, simulated.instances[machine], notice=100_000)
    await world.novita.stop_instance(machine)
    hasten(world)
    simulated.instances[machine].spot_reclaim_time = int((now() - timedelta(hours=1)).timestamp())  # our clock is late
    await see(world)
    assert (await world.instance(instance_id))["status_reason"] == "SPOT_RECLAIMED"

    async def is_forgotten() -> bool:
        return (await row_of(world, instance_id)).recovery_state is None

    await world.work_until(is_forgotten)

    assert (await world.value(RECOVERIES), world.calls(START)) == (0, 0)
    assert (await world.instance(instance_id))["status"] == S.EXITED


async def test_nothing_is_recovered_while_the_provider_can_not_be_read(world: World):
    instance_id, machine = await ready(world)
    reclaim(world, machine)
    await see(world)
    world.outage()

    for _ in range(5):
        await world.hurry()
        await world.work_once()
        await world.execute("UPDATE instance SET status_since = status_since - interval '6 minutes'")

    assert await world.value(RECOVERIES) == 0
    world.faults()
    await recovered(world, instance_id)
    assert world.made() == 1


async def test_an_unreadable_provider_recovers_nothing(world: World):
    instance_id, _ = await ready(world)
    world.outage()
    for _ in range(3):
        with pytest.raises(Exception, match="Novita"):
            await see(world)
        await world.enqueue(Reconcile())
        await world.hurry()
        await world.work_once()

    assert (await world.value(RECOVERIES), (await world.instance(instance_id))["status"]) == (0, S.READY)
    assert await world.value("SELECT count(*) FROM job WHERE kind = 'RECOVER_INSTANCE'") == 0


async def test_mass_disappearance_recovers_nothing(world: World):
    ids = []
    for number in range(4):
        accepted = await world.create(f"many-{number}", billing=Billing.SPOT, recovery=ALL)
        await world.work_until_status(accepted.instance.id, S.READY)
        ids.append((await world.instance(accepted.instance.id))["novita_id"])
    for machine in ids:
        lose(world, machine)

    for _ in range(3):
        await world.enqueue(Reconcile())
        await world.hurry()
        await world.work_once()

    assert (await world.value(RECOVERIES), world.made()) == (0, 4)
    assert await world.value("SELECT count(*) FROM instance WHERE status = 'READY'") == 4


def can_start(world: World, is_allowed: bool) -> None:
    """Whether the provider starts machines that were reclaimed."""
    simulated = world.simulator.world
    simulated.set_dialect(simulated.dialect.changed({"starts_reclaimed": is_allowed}))


async def fail_first_attempt(world: World) -> UUID:
    """An instance whose first attempt was refused for a reason that no capacity would change."""
    instance_id, machine = await ready(world, SAME_ONLY)
    can_start(world, False)
    reclaim(world, machine)
    await see(world)

    async def has_failed() -> bool:
        return (await world.instance(instance_id))["status_reason"] == "RECOVERING"

    await world.work_until(has_failed)
    return instance_id


async def test_refused_attempt_is_repeated_after_a_pause(world: World):
    instance_id = await fail_first_attempt(world)
    row = await row_of(world, instance_id)
    assert (row.status, incident.is_open(row)) == (S.EXITED, True)
    assert incident.due_at(row) == row.status_since + timedelta(minutes=1)
    can_start(world, True)
    await world.hurry()
    await world.work_once()
    assert await world.value(RECOVERIES) == 1  # not before its time

    await world.execute("UPDATE instance SET status_since = status_since - interval '1 minute'")
    await recovered(world, instance_id)

    assert await world.value(RECOVERIES) == 2


async def test_recovery_gives_up_after_its_time(world: World):
    instance_id = await fail_first_attempt(world)
    await world.execute(
        "UPDATE instance SET recovery_state = jsonb_set(recovery_state, '{since}', to_jsonb($1::text))",
        (now() - timedelta(days=1)).isoformat(),
    )

    async def has_given_up() -> bool:
        return "recovery.gave_up" in await world.event_types(instance_id)

    await world.work_until(has_given_up)

    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], await world.value(RECOVERIES)) == (S.EXITED, "RECOVERY_GAVE_UP", 1)
    last = (await world.events(instance_id))[-1]
    assert last.data["values"] == {"trigger": "RECLAIM", "try": "1", "code": "GIVE_UP_AFTER", "tries": "1"}


@pytest.mark.parametrize("end", ["stop", "remove", "delete"])
async def test_caller_ends_a_recovery_between_attempts(world: World, end: str):
    instance_id = await fail_first_attempt(world)
    can_start(world, True)
    if end == "stop":
        stopped = await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
        assert (stopped.operation.kind, stopped.operation.status) == ("STOP", "SUCCEEDED")
    elif end == "remove":
        await update_instance(
            world.database, Target(instance_id), UpdateDraft(recovery=RecoveryChange(None)), by=world.caller
        )
    else:
        await world.delete(instance_id)
    await world.execute("UPDATE instance SET status_since = status_since - interval '1 hour'")

    async def is_over() -> bool:
        return await world.value("SELECT count(*) FROM job WHERE kind = 'RECOVER_INSTANCE'") == 0

    await world.work_until(is_over)

    assert (await world.value(RECOVERIES), world.made()) == (1, 1)
    row = await world.instance(instance_id)
    assert row["status_reason"] != "RECOVERING"
    assert row["status"] in (S.EXITED, S.DELETING, S.DELETED)


async def test_cancelled_attempt_ends_recovery_until_the_next_start(world: World):
    instance_id, machine = await ready(world)
    reclaim(world, machine)
    await see(world)
    await start_attempt(world)
    operation_id = await world.value("SELECT id FROM operation WHERE reason = 'RECOVERY'")

    await cancel(world, operation_id)

    row = await row_of(world, instance_id)
    assert (row.status, row.status_reason, incident.is_open(row)) == (S.EXITED, "CANCELLED", False)
    accepted = await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller)
    assert (await world.work_until_over(accepted.operation.id))["status"] == "SUCCEEDED"
    reclaim(world, machine)
    await see(world)

    async def begins_again() -> bool:
        return await world.value(RECOVERIES) == 2

    await world.work_until(begins_again)


async def test_lost_job_is_made_again_by_reconcile(world: World):
    instance_id, machine = await ready(world)
    reclaim(world, machine)
    await see(world)
    await world.execute("DELETE FROM job WHERE kind = 'RECOVER_INSTANCE'")

    await world.enqueue(Reconcile())
    await recovered(world, instance_id)

    assert await world.value(RECOVERIES) == 1


async def test_failed_start_of_a_machine_that_runs_makes_no_second_one(world: World):
    instance_id, machine = await ready(world)
    reclaim(world, machine)
    await see(world)
    world.faults(Fault(FaultKind.PULL_FAILURE, routes=(START,), times=1))
    await start_attempt(world)

    async def has_failed() -> bool:
        return (await world.instance(instance_id))["status"] in (S.FAILED, S.EXITED, S.READY)

    await world.work_until(has_failed)

    assert world.made() == 1


def test_pauses_double_up_to_half_an_hour_and_ten_attempts_fit_into_a_day():
    at = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    row = Instance(status_since=at)
    pauses = []
    for many in range(10):
        row.recovery_state = {"tries": [at.isoformat()] * many}
        pauses.append((incident.due_at(row) - at) // timedelta(minutes=1))
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    row.recovery_state = {"tries": [at.isoformat()] * 10}
    assert incident.due_at(row) == at + timedelta(days=1)


def test_clock_that_was_set_back_keeps_no_attempt_waiting():
    """What lies in the future was written before that."""
    at = now()
    ahead = at + timedelta(days=1)
    row = Instance(status_since=ahead, recovery_state={"tries": [ahead.isoformat()] * 10})
    assert incident.due_at(row) - at < timedelta(minutes=1)
    row = Instance(status_since=at, recovery_state={"tries": [at.isoformat(), *[ahead.isoformat()] * 9]})
    assert incident.due_at(row) == at + timedelta(minutes=1)

    notified = Instance(spot_reclaim_at=ahead)
    notified.recovery_state = notice.tried(notified)
    notified.recovery_state["notice"]["last"] = ahead.isoformat()
    assert notice.due_at(notified) - at < timedelta(minutes=1)


@pytest.mark.parametrize(("ready_for", "kept"), [(timedelta(hours=6), 0), (timedelta(hours=5, minutes=59), 3)])
def test_attempts_are_counted_anew_after_six_hours_ready(ready_for: timedelta, kept: int):
    at = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    tries = [at.isoformat()] * 3
    row = Instance(status=S.READY, ready_at=at - ready_for, recovery=ALL.to_json(), recovery_state={"tries": tries})

    changed = incident.changes(row, S.EXITED, {"status_reason": "SPOT_RECLAIMED"}, at=at)

    assert changed["recovery_state"] == {"since": at.isoformat(), "trigger": "RECLAIM", "tries": tries[:kept], "now": 0}


@pytest.mark.parametrize(
    ("recovery", "code", "field"),
    [
        (Recovery(allow_data_loss=False, steps=(StartStep.RELOCATE,)), "DATA_LOSS_NOT_ALLOWED", "allowDataLoss"),
        (Recovery(allow_data_loss=False, steps=(StartStep.MIGRATE,)), "DATA_LOSS_NOT_ALLOWED", "allowDataLoss"),
        (Recovery(allow_data_loss=True, steps=()), "INVALID_RECOVERY", "steps"),
        (Recovery(allow_data_loss=True, on=()), "INVALID_RECOVERY", "on"),
        (Recovery(allow_data_loss=True, on=(RecoveryTrigger.OTHER,)), "INVALID_RECOVERY", "on"),
        (Recovery(allow_data_loss=True, regions=()), "INVALID_RECOVERY", "regions"),
        (Recovery(allow_data_loss=True, billing=RecoveryBilling.OTHER), "INVALID_RECOVERY", "billing"),
        (Recovery(allow_data_loss=True, give_up_after=timedelta(seconds=59)), "INVALID_RECOVERY", "giveUpAfter"),
        (Recovery(allow_data_loss=True, give_up_after=timedelta(days=31)), "INVALID_RECOVERY", "giveUpAfter"),
    ],
)
async def test_bad_recovery_is_refused_and_nothing_is_written(world: World, recovery: Recovery, code: str, field: str):
    before = await world.counts()

    with pytest.raises(Invalid) as refused:
        await world.create("one", recovery=recovery)

    assert [(each.code, each.path) for each in refused.value.problems] == [(code, ("input", "recovery", field))]
    assert await world.counts() == before


def test_recovery_is_stored_and_read_as_it_was_given():
    given = Recovery(
        allow_data_loss=True,
        on=(RecoveryTrigger.LOSS,),
        steps=(StartStep.RELOCATE, StartStep.SAME),
        regions=("AS-SGP-02",),
        billing=RecoveryBilling.ON_DEMAND_AFTER,
        give_up_after=timedelta(hours=2),
    )

    assert read(given.to_json()) == given
    assert given.all_steps == (StartStep.SAME, StartStep.RELOCATE)
    assert (ALL.all_steps, SAME_ONLY.all_steps) == (tuple(list(StartStep)[:3]), (StartStep.SAME,))
