"""Starts that wait for capacity: of the same machine, and by steps that make a new one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from server.clock import now
from server.enums import InstanceStatus, LifetimeAction, OperationKind, StartStep
from server.errors import NotCancellable
from server.instances.commands.cancel import cancel_operation
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.drafts import StartDraft
from server.instances.idempotency import Accepted
from server.instances.limits.spec import Lifetime, LifetimeChange
from server.instances.provider.reader import unseen_for
from server.instances.provider.reconcile import reconcile
from server.instances.queries.instances import get_instance
from server.market.refusals import QueuedBehind
from server.market.wait_draft import WaitDraft
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from tests.server.lifetimes.conftest import age, lifetime_events, run_step
from tests.server.market.polls import CLUSTER, NAME, PRODUCT, REGION, Market
from tests.server.market.waiters import CREATE, HOUR, die, names_made, row, stock, waiting, work
from tests.support.lifecycle import START, Dying
from tests.support.machines import start_outside

S = InstanceStatus


async def exited(market: Market, name: str = "machine") -> UUID:
    """A stopped instance; nothing else of its product is free."""
    world = market.world
    accepted = await world.create(name, product_name=NAME, regions=(REGION,), billing="SPOT")
    await world.work_until_status(accepted.instance.id, S.READY)
    await accept(world.database, OperationKind.STOP, Target(accepted.instance.id), by=world.caller)
    await world.work_until_status(accepted.instance.id, S.EXITED)
    await stock(market, 0)
    return accepted.instance.id


async def start(market: Market, instance_id: UUID, *steps: StartStep, **options: Any) -> Accepted:
    """A start that has been refused for lack of stock, and sleeps."""
    draft = StartDraft(
        steps=steps or (StartStep.SAME,), allow_data_loss=True, on_no_capacity=WaitDraft(length=HOUR, **options)
    )
    world = market.world
    accepted = await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller, draft=draft)
    await work(market)
    return accepted


async def test_start_that_is_refused_for_stock_waits_and_goes_on_with_the_same_machine(market: Market):
    await market.poll()
    instance_id = await exited(market)
    machine = (await market.world.instance(instance_id))["novita_id"]

    accepted = await start(market, instance_id)
    instance, operation = await market.world.instance(instance_id), await market.world.operation(accepted.operation.id)
    assert (instance["status"], instance["status_reason"]) == ("STARTING", "WAITING_FOR_CAPACITY")
    assert (operation["phase"], operation["asked_at"], operation["reserved_price_e5"]) == ("STARTING", None, None)
    calls = market.world.calls(START)
    assert calls == 1
    assert await market.world.work_once() == 0

    await stock(market, 1)
    await market.world.work_until_status(instance_id, S.READY)
    assert (await market.world.instance(instance_id))["novita_id"] == machine
    assert (market.world.calls(START), market.world.made()) == (2, 1)
    types = await market.world.event_types(instance_id)
    assert [each for each in types if each.startswith("wait.")] == ["wait.began", "wait.matched"]
    assert await row(market, accepted) is None


async def test_start_that_goes_on_says_no_longer_that_it_waits(market: Market):
    await market.poll()
    instance_id = await exited(market)
    await start(market, instance_id)
    assert (await market.world.instance(instance_id))["status_reason"] == "WAITING_FOR_CAPACITY"
    await stock(market, 1)
    await market.world.work_until_status(instance_id, S.READY)

    shown = [each.data["instance"] for each in await market.world.events(instance_id) if "instance" in each.data]
    reasons = [each["status_reason"] for each in shown if each["status"] == S.STARTING]
    assert ("WAITING_FOR_CAPACITY" in reasons, reasons[-1]) == (True, None)


async def test_waiting_start_is_not_stale_and_can_be_cancelled(market: Market):
    await market.poll()
    instance_id = await exited(market)
    accepted = await start(market, instance_id)
    await market.world.execute(
        "UPDATE instance SET status_since = now() - interval '1 day', observed_at = now() - interval '1 day'"
    )
    async with market.world.database.read() as session:
        instance = await get_instance(session, instance_id, by=market.world.caller)
    assert instance is not None
    assert unseen_for(instance) is None

    cancelled = await cancel_operation(market.world.database, accepted.operation.id, by=market.world.caller)

    assert (cancelled.operation.status, cancelled.instance.status) == ("CANCELLED", "EXITED")
    assert await row(market, accepted) is None


async def test_waiting_start_ends_with_its_time_and_the_instance_is_exited_again(market: Market):
    await market.poll()
    instance_id = await exited(market)
    accepted = await start(market, instance_id)
    await market.world.execute("UPDATE capacity_wait SET until = now() - interval '1 second'")

    operation = await market.world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "WAIT_EXPIRED")
    assert (await market.world.instance(instance_id))["status"] == "EXITED"
    assert market.world.calls(START) == 1


@pytest.mark.parametrize("on_end", [LifetimeAction.STOP, LifetimeAction.DELETE])
async def test_deadline_ends_the_wait_of_a_start(market: Market, on_end: LifetimeAction):
    world = market.world
    await market.poll()
    instance_id = await exited(market)
    lifetime = Lifetime(deadline=now() + timedelta(minutes=30), on_end=on_end)
    await update_instance(
        world.database, Target(instance_id), UpdateDraft(lifetime=LifetimeChange(lifetime)), by=world.caller
    )
    accepted = await start(market, instance_id)
    await age(world, instance_id, timedelta(minutes=31))

    await run_step(world, instance_id)
    await work(market)

    operation = await world.operation(accepted.operation.id)
    assert (operation["status"], await row(market, accepted)) == ("SUPERSEDED", None)
    ended = [values for type, values in await lifetime_events(world, instance_id) if type == "lifetime.ended"]
    assert [(each["action"], each["reason"], each["outcome"]) for each in ended] == [(on_end, "DEADLINE", "ACCEPTED")]
    instance = await world.instance(instance_id)
    assert (instance["status"] == "EXITED", instance["status_reason"]) == (on_end is LifetimeAction.STOP, "DEADLINE")
    await stock(market, 1)
    await work(market)
    assert (world.calls(START), world.made()) == (1, 1)


async def test_start_and_creates_of_a_project_are_served_in_one_order(market: Market):
    await market.poll()
    instance_id = await exited(market)
    market.world.catalog = market.catalog()
    await waiting(market, "before")
    accepted = await start(market, instance_id)
    await waiting(market, "after")

    for _ in range(3):
        await stock(market, 1)
        await work(market)
        await stock(market, 0)

    assert await row(market, accepted) is None
    assert await names_made(market) == ["machine", "before", "after"]
    assert await market.world.value("SELECT count(*) FROM capacity_wait") == 0


async def test_start_that_its_host_refuses_blocks_no_other_and_is_tried_again_later(market: Market):
    await market.poll()
    instance_id = await exited(market)
    market.world.faults(Fault(FaultKind.ERROR, (START,), times=3, status=400, reason="INSUFFICIENT_RESOURCE"))
    accepted = await start(market, instance_id)
    market.world.catalog = market.catalog()
    await waiting(market, "behind")
    await stock(market, 1)
    await work(market)
    assert (await names_made(market), market.world.calls(START)) == (["machine", "behind"], 2)
    await stock(market, 5)
    await work(market)
    assert market.world.calls(START) == 3
    await stock(market, 5)  # as before
    assert await market.world.work_once() == 0

    await market.world.execute("UPDATE capacity_wait SET blocked_until = now()")
    operation = await market.world.work_until_over(accepted.operation.id)

    assert (operation["status"], market.world.calls(START)) == ("SUCCEEDED", 4)


async def test_start_that_its_host_refuses_is_tried_again_after_the_clock_was_set_back(market: Market):
    await market.poll()
    instance_id = await exited(market)
    market.world.faults(Fault(FaultKind.ERROR, (START,), times=2, status=400, reason="INSUFFICIENT_RESOURCE"))
    accepted = await start(market, instance_id)
    await stock(market, 5)
    await work(market)
    await stock(market, 5)  # as before
    assert (await market.world.work_once(), market.world.calls(START)) == (0, 2)

    moved = "blocked_until = blocked_until + interval '1 day', refused_at = refused_at + interval '1 day'"
    await market.world.execute(f"UPDATE capacity_wait SET {moved}")
    await stock(market, 5)

    operation = await market.world.work_until_over(accepted.operation.id)
    assert (operation["status"], market.world.calls(START)) == ("SUCCEEDED", 3)


async def test_start_that_its_host_refuses_blocks_no_new_request(market: Market):
    """It can't have what is offered, so nothing is left to it, until the offer changes."""
    await market.poll()
    instance_id = await exited(market)
    market.world.faults(Fault(FaultKind.ERROR, (START,), times=2, status=400, reason="INSUFFICIENT_RESOURCE"))
    await start(market, instance_id)
    await stock(market, 5)
    await work(market)
    assert market.world.calls(START) == 2
    market.world.catalog = market.catalog()
    request: dict[str, Any] = {"product_name": NAME, "regions": (REGION,), "billing": "SPOT"}

    await market.world.create("new", **request)
    await work(market)
    assert await names_made(market) == ["machine", "new"]

    await market.world.execute("UPDATE capacity_wait SET refused_at = refused_at - interval '1 hour'")
    with pytest.raises(QueuedBehind):
        await market.world.create("behind", **request)


async def test_start_of_a_machine_is_not_woken_by_another_product_of_the_same_name(market: Market):
    await market.poll()
    accepted = await start(market, await exited(market))
    catalog = market.world.simulator.world.catalog
    catalog.add(replace(catalog.products[PRODUCT], id="other", stock={CLUSTER: 4}))

    await market.poll_segment()

    assert await market.world.value("SELECT is_available FROM offer WHERE product_id = 'other' AND mode = 'spot'")
    found = await row(market, accepted)
    assert found is not None
    assert found["job_id"] is None


async def test_job_of_a_start_that_is_run_again_after_it_fell_asleep_asks_for_nothing(market: Market):
    """Its process died after the commit."""
    await market.poll()
    accepted = await start(market, await exited(market))
    found = await row(market, accepted)
    assert found is not None
    await market.world.execute(
        """INSERT INTO job (kind, args, priority, project_id, instance_id, run_at, due_at)
           VALUES ($1, $2, 0, $3, $4, now(), now())""",
        *(found[name] for name in ("kind", "args", "project_id", "instance_id")),
    )

    await work(market)

    assert (market.world.calls(START), await row(market, accepted)) == (1, found)


async def test_start_by_steps_waits_for_a_new_machine_after_the_last_step(market: Market):
    await market.poll()
    instance_id = await exited(market)
    old = (await market.world.instance(instance_id))["novita_id"]
    market.world.faults(
        Fault(FaultKind.ERROR, (START,), times=1, status=400, reason="INSUFFICIENT_RESOURCE", message="full")
    )
    market.world.catalog = market.catalog()

    accepted = await start(market, instance_id, StartStep.SAME, StartStep.RELOCATE)
    found = await row(market, accepted)
    assert found is not None
    assert (found["kind"], found["product_id"], found["regions"]) == ("START_BY_STEPS", None, [REGION])
    assert (await market.world.operation(accepted.operation.id))["phase"] == "PLACING"

    await stock(market, 1)
    await market.world.work_until_status(instance_id, S.READY)
    assert (await market.world.instance(instance_id))["novita_id"] != old
    # The worker's catalogue was older than the stock: one call was refused before it waited.
    assert (market.world.calls(START), market.world.calls(CREATE), market.world.made()) == (1, 3, 2)


async def test_machine_that_is_started_elsewhere_wakes_the_start_that_waits_for_it(market: Market):
    await market.poll()
    instance_id = await exited(market)
    accepted = await start(market, instance_id)
    machine = (await market.world.instance(instance_id))["novita_id"]
    market.plan(free=5)
    await start_outside(market.world, machine)

    await reconcile(market.world.database, market.world.novita)
    operation = await market.world.work_until_over(accepted.operation.id)

    assert (operation["status"], market.world.calls(START)) == ("SUCCEEDED", 1)


async def test_machine_that_is_gone_ends_the_start_that_waits_for_it(market: Market):
    await market.poll()
    instance_id = await exited(market)
    accepted = await start(market, instance_id)
    simulated = market.world.simulator.world
    lifecycle.lose(simulated, simulated.instances[(await market.world.instance(instance_id))["novita_id"]])

    async def is_over() -> bool:
        await reconcile(market.world.database, market.world.novita, gone_grace=timedelta(milliseconds=1))
        return (await market.world.operation(accepted.operation.id))["finished_at"] is not None

    await market.world.work_until(is_over)

    assert (await market.world.operation(accepted.operation.id))["error_code"] == "GONE_AT_PROVIDER"
    assert await row(market, accepted) is None


async def test_worker_killed_after_a_woken_start_was_accepted_starts_nothing_twice(market: Market):
    await market.poll()
    instance_id = await exited(market)
    accepted = await start(market, instance_id)
    await stock(market, 1)
    await die(market, Dying)

    operation = await market.world.work_until_over(accepted.operation.id)

    assert (operation["status"], market.world.calls(START), market.world.made()) == ("SUCCEEDED", 2, 1)


async def test_woken_start_whose_call_is_in_doubt_can_not_be_cancelled(market: Market):
    await market.poll()
    instance_id = await exited(market)
    accepted = await start(market, instance_id)
    await stock(market, 1)
    await die(market, Dying)

    with pytest.raises(NotCancellable):
        await cancel_operation(market.world.database, accepted.operation.id, by=market.world.caller)

    assert (await market.world.work_until_over(accepted.operation.id))["status"] == "SUCCEEDED"
    assert market.world.made() == 1


async def test_start_that_relocates_takes_no_offer_that_an_older_operation_waits_for(market: Market):
    await market.poll()
    instance_id = await exited(market)
    market.world.catalog = market.catalog()
    older = await waiting(market, "older")
    market.world.faults(Fault(FaultKind.ERROR, (START,), times=1, status=400, reason="INSUFFICIENT_RESOURCE"))
    later = "UPDATE job SET run_at = now() + $2::interval, due_at = now() + $2::interval WHERE instance_id = $1"
    await stock(market, 1)
    await market.world.execute(later, older.instance.id, HOUR)
    market.world.catalog = market.catalog()
    await market.world.configure(market_calls=10_000, market_hot=HOUR)  # it sees the stock
    draft = StartDraft(steps=(StartStep.SAME, StartStep.RELOCATE), allow_data_loss=True)
    world = market.world
    accepted = await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller, draft=draft)

    await work(market)

    operation = await world.operation(accepted.operation.id)
    assert (operation["status"], operation["error_code"], world.made()) == ("FAILED", "QUEUED_BEHIND", 1)
    await world.execute(later, older.instance.id, timedelta(0))
    await work(market)
    assert await names_made(market) == ["machine", "older"]
