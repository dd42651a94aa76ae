"""The last step of a recovery: it waits for capacity, until it gives up or a caller ends it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.enums import InstanceStatus, OperationKind, StartStep
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.limits.spec import Lifetime
from server.instances.provider.reconcile import reconcile
from server.instances.recovery.spec import Recovery, RecoveryChange
from tests.server.market.conftest import market
from tests.server.market.polls import NAME, REGION, Market
from tests.server.market.waiters import stock, work
from tests.server.market.waiters import waiting as waiting_create
from tests.server.recovery.test_recovery import RECOVERIES, reclaim, see
from tests.server.recovery.test_replacement import notify
from tests.server.recovery.test_replacement import ready as ready_to_replace
from tests.server.recovery.test_steps import gone
from tests.server.spend.test_budgets import budget, usage
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import START, cancel, hasten
from tests.support.machines import start_outside
from tests.support.world import World

__all__ = ["market"]

S = InstanceStatus
RELOCATE = Recovery(allow_data_loss=True, steps=(StartStep.RELOCATE,), give_up_after=timedelta(hours=2))
WAIT = "SELECT * FROM capacity_wait"
NEXT_LOOK = "SELECT status, run_at < now() + interval '5 minutes' FROM job WHERE unique_key LIKE 'recover %'"


async def waiting(market: Market, recovery: Recovery = RELOCATE, **fields: Any) -> tuple[UUID, str]:
    """A reclaimed instance whose first attempt has found nothing in stock, and its old machine."""
    world = market.world
    await market.poll()
    order: dict[str, Any] = {
        "product_name": NAME,
        "regions": (REGION,),
        "billing": "SPOT",
        "recovery": recovery,
        **fields,
    }
    accepted = await world.create("one", **order)
    await world.work_until_status(accepted.instance.id, S.READY)
    machine = (await world.instance(accepted.instance.id))["novita_id"]
    reclaim(world, machine)
    await stock(market, 0)
    await world.configure()  # without a catalogue that is older than the stock
    await see(world)
    await waits_for_capacity(world, accepted.instance.id)
    return accepted.instance.id, machine


async def waits_for_capacity(world: World, instance_id: UUID) -> None:
    async def is_waiting() -> bool:
        return (await world.instance(instance_id))["status_reason"] == "WAITING_FOR_CAPACITY"

    await world.work_until(is_waiting)


async def the_wait(market: Market) -> asyncpg.Record:
    return (await market.world.rows(WAIT))[0]


async def test_attempt_without_capacity_waits_until_recovery_gives_up_and_takes_what_comes(market: Market):
    world = market.world
    instance_id, old = await waiting(market)
    row = await world.instance(instance_id)
    since = datetime.fromisoformat(await world.value("SELECT recovery_state ->> 'since' FROM instance"))
    assert (row["status"], (await the_wait(market))["until"]) == (S.STARTING, since + RELOCATE.give_up_after)
    await world.hurry()
    await work(market)  # the job of the incident sees that it waits
    assert await world.value("SELECT run_at > now() + interval '55 minutes' FROM job WHERE kind = 'RECOVER_INSTANCE'")
    assert await world.work_once() == 0

    await stock(market, 1)
    await world.work_until_status(instance_id, S.READY)
    row = await world.instance(instance_id)
    assert (row["novita_id"] != old, world.made(), await world.value(RECOVERIES)) == (True, 2, 1)
    assert [each for each in await world.event_types(instance_id) if each.startswith(("wait.", "recovery."))] == [
        "recovery.began",
        "recovery.step",
        "wait.began",
        "wait.matched",
    ]
    assert await world.rows(WAIT) == []

    async def is_alone() -> bool:
        hasten(world)
        return [each.id for each in world.machines()] == [row["novita_id"]]

    await world.work_until(is_alone)
    assert await machines_unaccounted(world) == []


async def test_wait_ends_when_recovery_gives_up(market: Market):
    world = market.world
    instance_id, _ = await waiting(market)
    await world.hurry()
    await work(market)  # the job of the incident sees that it waits
    await world.execute("UPDATE capacity_wait SET until = now() - interval '1 second'")
    await world.execute(
        "UPDATE instance SET recovery_state = jsonb_set(recovery_state, '{since}', to_jsonb($1::text))",
        (now() - RELOCATE.give_up_after).isoformat(),
    )
    await world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'EXPIRE_WAIT'")

    await work(market)  # without more hurry: the end of the attempt makes the job of the incident due

    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == (S.EXITED, "RECOVERY_GAVE_UP")
    assert await world.value("SELECT error_code FROM operation WHERE reason = 'RECOVERY'") == "WAIT_EXPIRED"
    types = await world.event_types(instance_id)
    assert (types.count("wait.expired"), types.count("recovery.gave_up"), world.made()) == (1, 1, 1)


@pytest.mark.parametrize("where", ["read", "write"])
async def test_end_of_a_wait_during_the_rare_look_makes_the_next_step_due(market: Market, where: str):
    """After the look has read that it waits, or after it has put itself off: before its run is over."""
    world = market.world
    instance_id, _ = await waiting(market)
    other = world.worker_with(world.novita)
    transaction = getattr(world.database, where)

    async def end_the_wait() -> None:
        await world.execute("UPDATE capacity_wait SET until = now() - interval '1 second'")
        await world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'EXPIRE_WAIT'")
        while (await world.instance(instance_id))["status"] != S.EXITED:
            await world.work_once(other)

    @asynccontextmanager
    async def interrupted() -> AsyncGenerator[AsyncSession]:
        async with transaction() as session:
            yield session
        if world.database.__dict__.pop(where, None) is not None:
            await end_the_wait()

    await world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'RECOVER_INSTANCE'")
    world.database.__dict__[where] = interrupted
    await world.work_once()
    assert (await world.instance(instance_id))["status"] == S.EXITED
    await work(market)

    assert [tuple(each) for each in await world.rows(NEXT_LOOK)] == [("WAITING", True)]


async def test_notice_during_the_rest_of_a_rare_look_is_followed_at_once(market: Market):
    world = market.world
    instance_id, _ = await waiting(market, replace(RELOCATE, replace_before_reclaim=True))
    await world.hurry()
    await work(market)  # the job of the incident sees that it waits
    await stock(market, 1)
    while (await world.instance(instance_id))["status"] != S.READY:
        hasten(world)
        await world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind <> 'RECOVER_INSTANCE'")
        await world.work_once()
    assert [tuple(each) for each in await world.rows(NEXT_LOOK)] == [("WAITING", False)]

    await notify(world, (await world.instance(instance_id))["novita_id"])

    assert [tuple(each) for each in await world.rows(NEXT_LOOK)] == [("WAITING", True)]


async def test_wait_is_no_longer_than_the_lifetime_of_the_instance(market: Market):
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    await waiting(market, lifetime=Lifetime(deadline=deadline))

    assert (await the_wait(market))["until"] == deadline


@pytest.mark.parametrize("end", ["stop", "remove", "cancel", "delete"])
async def test_caller_ends_a_recovery_that_waits(market: Market, end: str):
    world = market.world
    instance_id, _ = await waiting(market)
    operation_id = await world.value("SELECT id FROM operation WHERE reason = 'RECOVERY'")
    if end == "stop":
        stopped = await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
        assert (stopped.operation.status, stopped.instance.status) == ("SUCCEEDED", S.EXITED)
    elif end == "remove":
        change = UpdateDraft(recovery=RecoveryChange(None))
        await update_instance(world.database, Target(instance_id), change, by=world.caller)
    elif end == "cancel":
        await cancel(world, operation_id)
    else:
        await world.delete(instance_id)
    assert await world.rows(WAIT) == []
    await stock(market, 1)

    async def is_over() -> bool:
        left = "SELECT count(*) FROM job WHERE kind IN ('RECOVER_INSTANCE', 'START_BY_STEPS', 'EXPIRE_WAIT')"
        return await world.value(left) == 0

    await world.work_until(is_over)

    ended = await world.operation(operation_id)
    assert ended["status"] == ("CANCELLED" if end == "cancel" else "SUPERSEDED")
    row = await world.instance(instance_id)
    assert row["status"] in ((S.DELETING, S.DELETED) if end == "delete" else (S.EXITED,))
    assert row["status_reason"] not in ("RECOVERING", "WAITING_FOR_CAPACITY")
    assert (world.made(), await world.value(RECOVERIES)) == (1, 1)


async def test_what_a_woken_recovery_costs_counts_for_the_token_of_its_run(market: Market):
    world = market.world
    instance_id, _ = await waiting(market)
    row = await budget(world, 1, token_id=world.caller.token_id)
    assert (await usage(world, row)).reserved == 0

    await stock(market, 1)
    await work(market)

    found = await the_wait(market)
    assert (found["blocked_by"], found["tries"], world.made()) == ("BUDGET", 0, 1)
    assert (await world.instance(instance_id))["status"] == S.STARTING


async def test_machine_that_is_started_elsewhere_ends_the_wait_for_another_one(market: Market):
    world = market.world
    instance_id, machine = await waiting(market)
    market.plan(free=5)
    await start_outside(world, machine)

    await reconcile(world.database, world.novita)
    await world.work_until_status(instance_id, S.READY)

    row = await world.instance(instance_id)
    assert (row["novita_id"], world.made(), await world.rows(WAIT)) == (machine, 1, [])
    assert world.calls(START) == 0  # it was started in the console


async def test_replacement_takes_no_offer_that_an_older_operation_waits_for(market: Market):
    """It is tried again later, and the machine ends as announced if none is left for it until then."""
    world = market.world
    await market.poll()
    order: dict[str, Any] = {"product_name": NAME, "regions": (REGION,)}
    instance_id, old = await ready_to_replace(world, **order)
    await stock(market, 0)
    world.catalog = market.catalog()
    older = await waiting_create(market, "older")
    await stock(market, 1)
    later = "UPDATE job SET run_at = now() + $2::interval, due_at = now() + $2::interval WHERE instance_id = $1"
    await world.execute(later, older.instance.id, timedelta(hours=1))
    await world.configure(market_calls=10_000)  # it sees the stock

    await notify(world, old)
    await work(market)

    operation = await world.one("SELECT status, error_code FROM operation WHERE reason = 'RECOVERY'")
    assert (tuple(operation), world.made()) == (("FAILED", "QUEUED_BEHIND"), 1)
    assert (await world.instance(instance_id))["status"] == S.READY
    await world.execute(later, older.instance.id, timedelta(0))
    await work(market)
    assert (await world.instance(older.instance.id))["novita_id"] is not None


async def test_lost_machines_of_what_waits_are_no_mass_disappearance(market: Market):
    """They are known to be gone: nobody looks for them, and others are compared as before."""
    world = market.world
    await market.poll()
    order: dict[str, Any] = {"product_name": NAME, "regions": (REGION,), "billing": "SPOT", "recovery": RELOCATE}
    created = [await world.create(f"one-{number}", **order) for number in range(4)]
    for each in created:
        await world.work_until_status(each.instance.id, S.READY)
    await stock(market, 0)
    await world.configure()
    machines = [(await world.instance(each.instance.id))["novita_id"] for each in created]

    for each, machine in zip(created[:3], machines, strict=False):
        await gone(world, each.instance.id, machine)
        await stock(market, 0)  # the place of the lost machine is not for sale
        await waits_for_capacity(world, each.instance.id)

    assert await world.value("SELECT count(*) FROM capacity_wait WHERE job_id IS NULL") == 3
    looks = world.calls("GET /gpu/instance")
    events = await world.event_types(created[0].instance.id)
    for _ in range(2):
        await world.execute("UPDATE instance SET missing_since = missing_since - interval '1 hour'")
        await reconcile(world.database, world.novita, gone_grace=world.settings.gone_grace)
    assert await world.value("SELECT count(*) FROM capacity_wait WHERE job_id IS NULL") == 3
    assert (world.calls("GET /gpu/instance"), await world.event_types(created[0].instance.id)) == (looks, events)
