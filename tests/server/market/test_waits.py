"""Creates that wait for capacity: their order, what wakes them, and how they end."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from server.enums import InstanceKind, InstanceStatus
from server.errors import Invalid, NoCapacity, Refused
from server.instances.commands.cancel import cancel_operation
from server.market.refusals import QueuedBehind
from server.market.repair import repair_waits
from server.market.wait_draft import WaitDraft
from server.queue.kinds import Reconcile
from server.simulator.faults import Fault, FaultKind
from tests.server.market.polls import CLUSTER, NAME, PRODUCT, REGION, Market
from tests.server.market.waiters import (
    CREATE,
    HOUR,
    RESCUE,
    DyingAfter,
    DyingBefore,
    create,
    die,
    names_made,
    row,
    stock,
    waiting,
    work,
)


async def test_create_without_capacity_waits_without_a_slot_a_poll_or_an_event(empty: Market):
    accepted = await waiting(empty)
    world = empty.world

    events = await world.event_types(accepted.instance.id)
    calls = world.calls()
    assert await world.work_once() == 0
    instance, operation = await world.instance(accepted.instance.id), await world.operation(accepted.operation.id)
    assert (instance["status"], instance["status_reason"]) == ("CREATING", "WAITING_FOR_CAPACITY")
    assert (operation["status"], operation["phase"]) == ("RUNNING", "PLACING")
    found = await row(empty, accepted)
    assert found is not None
    since = operation["created_at"]
    assert (found["job_id"], found["tries"], found["priority"], found["since"]) == (None, 0, 50, since)
    assert events.count("wait.began") == 1
    assert (world.calls(), await world.event_types(accepted.instance.id)) == (calls, events)
    until = found["until"]
    jobs = await world.rows("SELECT kind, status, run_at - $1 AS left FROM job WHERE kind <> 'POLL_MARKET'", until)
    assert [tuple(job) for job in jobs] == [("EXPIRE_WAIT", "WAITING", timedelta(0))]


async def test_stock_wakes_a_waiter_which_becomes_ready_and_leaves_nothing_behind(empty: Market):
    accepted = await waiting(empty)

    await stock(empty, 1)
    await empty.world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    events = [each for each in await empty.world.events(accepted.instance.id) if each.type.startswith("wait.")]
    until = (await empty.world.operation(accepted.operation.id))["wanted"]
    assert [(each.type, each.data["values"]) for each in events] == [
        ("wait.began", {"until": json.loads(until)["wait"]["until"], "priority": "50"}),
        ("wait.matched", {"region": REGION, "billingMode": "spot", "pricePerHourE5": "19500"}),
    ]
    assert {each.operation_id for each in events} == {accepted.operation.id}
    operation = await empty.world.operation(accepted.operation.id)
    assert (operation["status"], empty.world.made(), empty.world.calls(CREATE)) == ("SUCCEEDED", 1, 1)
    assert await row(empty, accepted) is None
    assert await empty.world.value("SELECT count(*) FROM job WHERE kind = 'EXPIRE_WAIT'") == 0
    # Its time would make every estimate of a create wrong.
    assert (operation["product_name"], operation["region"]) == (None, None)


async def test_projects_take_turns_and_within_one_the_priority_goes_first_then_the_time(empty: Market):
    other = await empty.world.new_caller("other")
    for name, priority, by in (
        ("a-old", 50, None),
        ("a-new", 50, None),
        ("a-high", 90, None),
        ("b-low", 0, other),
        ("b-lower", 0, other),
    ):
        await waiting(empty, name, priority=priority, by=by)

    for free in range(1, 6):
        await stock(empty, 1)
        await work(empty)
        assert len(await names_made(empty)) == free
        await stock(empty, 0)

    assert await names_made(empty) == ["a-high", "b-low", "a-old", "b-lower", "a-new"]
    # Each that gets a machine wakes the next, which finds the one machine taken.
    assert empty.world.calls(CREATE) == 5 + 4


async def test_only_as_many_are_woken_as_the_stock_stands_for_and_each_wakes_the_next(empty: Market):
    accepted = [await waiting(empty, f"one-{number}") for number in range(4)]

    await stock(empty, 2)
    awake = "SELECT count(*) FROM capacity_wait WHERE job_id IS NOT NULL"
    assert await empty.world.value(awake) == 1
    await work(empty)

    assert await names_made(empty) == ["one-0", "one-1"]
    # The third was refused, and the fourth was not woken: the offer is empty until a look says otherwise.
    assert empty.world.calls(CREATE) == 3
    left = [await row(empty, each) for each in accepted[2:]]
    assert [(each["tries"], each["job_id"]) for each in left if each is not None] == [(1, None), (0, None)]


async def test_next_poll_counts_those_that_are_awake_and_whose_turn_they_are(empty: Market):
    other = await empty.world.new_caller("other")
    for name, by in (("a-first", None), ("a-second", None), ("b-first", other)):
        await waiting(empty, name, by=by)
    awake = "SELECT name FROM capacity_wait JOIN instance ON instance.id = instance_id WHERE job_id IS NOT NULL"

    await stock(empty, 1)
    await stock(empty, 1)
    assert [each["name"] for each in await empty.world.rows(awake)] == ["a-first"]

    empty.world.simulator.world.catalog.taken[PRODUCT, CLUSTER] = 4
    await stock(empty, 4)  # "normal": one more
    assert {each["name"] for each in await empty.world.rows(awake)} == {"a-first", "b-first"}


async def test_offer_that_came_before_the_last_look_wakes_the_one_that_falls_asleep(empty: Market):
    """Its worker's catalogue is older than the tape."""
    before = await waiting(empty, "before")
    await cancel_operation(empty.world.database, before.operation.id, by=empty.world.caller)
    await create(empty, "one")
    await stock(empty, 1)

    await work(empty)

    assert await names_made(empty) == ["one"]


async def test_worker_places_no_create_on_an_offer_that_an_older_waiter_wants(empty: Market):
    """It was accepted before the older one had begun to wait."""
    world, settings = empty.world, empty.world.settings
    later = "UPDATE job SET run_at = now() + $2::interval, due_at = now() + $2::interval WHERE instance_id = $1"
    empty.plan(free=1)
    world.catalog = world.new_catalog()
    pushy = await world.create("pushy", product_name=NAME, regions=(REGION,), billing="SPOT")
    await world.execute(later, pushy.instance.id, HOUR)
    empty.plan(free=0)
    older = await waiting(empty, "older")
    await world.execute("UPDATE capacity_wait SET since = since - interval '1 minute'")
    await stock(empty, 1)
    await world.configure(market_calls=settings.market_calls, market_hot=settings.market_hot)  # it sees the stock
    await world.execute(later, older.instance.id, HOUR)
    await world.execute(later, pushy.instance.id, timedelta(0))

    await work(empty)
    operation = await world.operation(pushy.operation.id)
    assert (operation["status"], operation["error_code"], world.made()) == ("FAILED", "QUEUED_BEHIND", 0)
    await world.execute(later, older.instance.id, timedelta(0))
    await work(empty)
    assert await names_made(empty) == ["older"]


async def test_refused_waiter_keeps_its_place_and_says_so(empty: Market):
    first, second = await waiting(empty, "first"), await waiting(empty, "second")
    before = await row(empty, first)
    empty.world.faults(
        Fault(FaultKind.ERROR, (CREATE,), times=1, status=400, reason="INSUFFICIENT_RESOURCE", message="none left")
    )

    await stock(empty, 1)
    await work(empty)
    after = await row(empty, first)
    assert before is not None
    assert after is not None
    assert (after["since"], after["tries"], after["job_id"]) == (before["since"], 1, None)
    last = (await empty.world.events(first.instance.id))[-1]
    refusal = {"code": "INSUFFICIENT_RESOURCE", "message": "none left (HTTP 400)"}
    assert (last.type, last.data["values"]) == ("wait.returned", refusal)
    assert (empty.world.made(), empty.world.calls(CREATE)) == (0, 1)
    assert await empty.world.value("SELECT is_available FROM offer WHERE product_id = '26' AND mode = 'spot'") is False

    await stock(empty, 1)
    await work(empty)
    assert await names_made(empty) == ["first"]
    assert await row(empty, second) is not None


async def test_offer_that_is_refused_for_another_reason_is_left_to_the_next_waiter(empty: Market):
    """It blocks no other, and is not offered again and again."""
    first = await waiting(empty, "first")
    await waiting(empty, "second")
    empty.world.faults(Fault(FaultKind.ERROR, (CREATE,), times=1, status=400, reason="CUDA_VERSION_INCOMPATIBLE"))

    await stock(empty, 1)
    await work(empty)

    assert await names_made(empty) == ["second"]
    found = await row(empty, first)
    assert found is not None
    assert (found["unfit"], empty.world.calls(CREATE)) == (f'["{REGION} 26 spot"]', 2)


async def test_wait_ends_with_an_error_that_can_be_retried(empty: Market):
    accepted = await waiting(empty)
    await empty.world.execute("UPDATE capacity_wait SET until = now() - interval '1 second'")

    operation = await empty.world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "WAIT_EXPIRED",
        True,
    )
    instance = await empty.world.instance(accepted.instance.id)
    assert (instance["status"], instance["failure_code"]) == ("FAILED", "WAIT_EXPIRED")
    assert "wait.expired" in await empty.world.event_types(accepted.instance.id)
    assert (await row(empty, accepted), empty.world.calls(CREATE)) == (None, 0)
    assert await empty.world.value("SELECT count(*) FROM job WHERE kind IN ('EXPIRE_WAIT', 'CREATE_INSTANCE')") == 0


async def test_stock_after_the_end_of_a_wait_goes_to_the_next_waiter(empty: Market):
    over = await waiting(empty, "over")
    await waiting(empty, "next")
    await empty.world.execute(
        "UPDATE capacity_wait SET until = now() - interval '1 second' WHERE operation_id = $1", over.operation.id
    )

    await stock(empty, 1)
    await work(empty)

    assert await names_made(empty) == ["next"]


async def test_cancelled_wait_leaves_no_row_and_no_machine(empty: Market):
    accepted = await waiting(empty)

    cancelled = await cancel_operation(empty.world.database, accepted.operation.id, by=empty.world.caller)

    assert (cancelled.operation.status, cancelled.instance.status, cancelled.clean_up) == ("CANCELLED", "DELETED", None)
    assert await row(empty, accepted) is None
    assert await empty.world.value("SELECT count(*) FROM job WHERE kind = 'EXPIRE_WAIT'") == 0
    await stock(empty, 1)
    await work(empty)
    assert (empty.world.made(), empty.world.calls(CREATE)) == (0, 0)


async def test_waiter_that_is_cancelled_while_it_is_awake_leaves_its_offer_to_the_next(empty: Market):
    first = await waiting(empty, "first")
    await waiting(empty, "second")
    await stock(empty, 1)  # wakes the first, which has not run yet

    await cancel_operation(empty.world.database, first.operation.id, by=empty.world.caller)
    await work(empty)

    assert await names_made(empty) == ["second"]
    assert empty.world.calls(CREATE) == 1


async def test_cancelled_wait_whose_create_is_in_doubt_leaves_no_machine(empty: Market):
    first = await waiting(empty, "first")
    await waiting(empty, "second")
    await stock(empty, 1)
    await die(empty, DyingAfter)
    assert empty.world.made() == 1

    cancelled = await cancel_operation(empty.world.database, first.operation.id, by=empty.world.caller)
    assert cancelled.clean_up is not None
    assert await row(empty, first) is None
    await empty.world.work_until_status(first.instance.id, InstanceStatus.DELETED)

    assert [each.id for each in empty.world.machines()] == []
    await stock(empty, 1)
    await work(empty)
    assert await names_made(empty) == ["second"]


async def test_lost_jobs_of_waits_are_made_again_by_reconcile(empty: Market):
    """Of one that sleeps, the job that ends its wait; of one that is awake, the job that carries it out."""
    awake, asleep = await waiting(empty, "awake"), await waiting(empty, "asleep")
    await stock(empty, 1)
    await empty.world.execute("DELETE FROM job WHERE kind IN ('CREATE_INSTANCE', 'EXPIRE_WAIT')")
    await empty.world.enqueue(Reconcile())

    await work(empty)

    assert await names_made(empty) == ["awake"]
    assert (await row(empty, awake), empty.world.made()) == (None, 1)
    found = await row(empty, asleep)
    assert found is not None
    jobs = await empty.world.rows("SELECT unique_key, run_at FROM job WHERE kind = 'EXPIRE_WAIT'")
    assert [tuple(each) for each in jobs] == [(f"wait {asleep.operation.id}", found["until"])]
    assert await repair_waits(empty.world.database) == 0


async def test_cpu_instance_waits_for_its_product(empty: Market):
    world, product = empty.world, ("cpu.16c32g", "us-ca-6")
    world.simulator.world.set_stock(*product, 0)
    order: dict[str, Any] = {
        "product_name": "CPU 16C 32GB",
        "kind": InstanceKind.CPU,
        "regions": ("ANY",),
        "billing": "ON_DEMAND",
    }
    accepted = await waiting(empty, **order)
    await empty.poll_segment("gpu_count = 0")
    assert await world.work_once() == 0

    world.simulator.world.set_stock(*product, 1)
    await empty.poll_segment("gpu_count = 0")
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert [each.product_id for each in world.machines()] == [product[0]]


async def test_webhook_of_the_instance_gets_the_events_of_its_wait(empty: Market):
    accepted = await waiting(empty, webhook_url="http://127.0.0.1:9/hook")
    await stock(empty, 1)
    await work(empty)

    sent = await empty.world.rows(
        "SELECT event_type FROM delivery WHERE instance_id = $1 AND event_type LIKE 'wait.%' ORDER BY id",
        accepted.instance.id,
    )
    assert [each[0] for each in sent] == ["wait.began", "wait.matched"]


async def test_deleted_instance_waits_no_longer(empty: Market):
    accepted = await waiting(empty)

    await empty.world.delete(accepted.instance.id)

    assert await row(empty, accepted) is None


async def test_new_request_is_not_placed_on_an_offer_that_an_older_waiter_wants(empty: Market):
    first = await waiting(empty, "first", priority=50)
    await stock(empty, 1)
    empty.world.catalog = empty.catalog()  # it sees the stock

    with pytest.raises(QueuedBehind) as refused:
        await empty.world.create("pushy", product_name=NAME, regions=(REGION,), billing="SPOT")
    assert (refused.value.code, refused.value.ahead) == ("QUEUED_BEHIND", 1)
    behind = await create(empty, "behind", priority=50)
    await work(empty)

    assert await names_made(empty) == ["first"]
    assert await row(empty, behind) is not None
    assert await row(empty, first) is None


async def test_request_of_a_higher_priority_or_of_another_project_is_not_refused(empty: Market):
    await waiting(empty, "first", priority=10)
    await empty.world.execute("UPDATE offer SET is_available = true WHERE product_id = '26'")
    empty.plan(free=2)
    empty.world.catalog = empty.catalog()

    await empty.world.create("higher", product_name=NAME, regions=(REGION,), billing="SPOT")
    other = await empty.world.new_caller("other")
    await empty.world.create("foreign", product_name=NAME, regions=(REGION,), billing="SPOT", by=other)

    assert await empty.world.value("SELECT count(*) FROM instance") == 3


async def test_waiter_that_an_offer_does_not_fit_blocks_no_other(empty: Market):
    dear = await waiting(empty, "cheap-only", priority=100, max_hourly_price_e5=1_000)
    await waiting(empty, "any-price", priority=0)

    await stock(empty, 1)
    await work(empty)

    assert await names_made(empty) == ["any-price"]
    assert await row(empty, dear) is not None


async def test_price_that_falls_to_the_maximum_wakes_the_waiter(empty: Market):
    await waiting(empty, "patient", max_hourly_price_e5=15_000)
    await stock(empty, 1, price=40_000)
    await work(empty)
    assert await names_made(empty) == []

    await stock(empty, 1, price=14_000)
    await work(empty)

    assert await names_made(empty) == ["patient"]


@pytest.mark.parametrize(
    ("draft", "codes"),
    [
        (WaitDraft(length=timedelta(seconds=59)), ["INVALID_WAIT"]),
        (WaitDraft(length=timedelta(days=30, seconds=1)), ["INVALID_WAIT"]),
        (WaitDraft(), ["INVALID_WAIT"]),
        (WaitDraft(length=HOUR, priority=101), ["INVALID_PRIORITY"]),
        (WaitDraft(length=timedelta(0), priority=-1), ["INVALID_WAIT", "INVALID_PRIORITY"]),
    ],
)
async def test_impossible_wait_is_refused_and_writes_nothing(empty: Market, draft: WaitDraft, codes: list[str]):
    before = await empty.world.counts()

    with pytest.raises(Invalid) as refused:
        await empty.world.create(product_name=NAME, regions=(REGION,), on_no_capacity=draft)

    assert [problem.code for problem in refused.value.problems] == codes
    assert await empty.world.counts() == before


async def test_wait_for_a_product_that_no_region_offers_is_refused_as_without_a_wait(empty: Market):
    with pytest.raises(Refused) as refused:
        await create(empty, "never", product_name="RTX 9999")

    assert refused.value.code == "PRODUCT_NOT_FOUND"
    with pytest.raises(NoCapacity):
        await empty.world.create(product_name=NAME, regions=(REGION,), billing="SPOT")


async def test_worker_killed_around_the_call_makes_one_machine_and_keeps_the_order(empty: Market):
    first = await waiting(empty, "first")
    await waiting(empty, "second")
    await stock(empty, 2)

    await die(empty, DyingBefore)
    await empty.world.age_attempts()
    await die(empty, DyingAfter)
    assert [status for _, _, status, _ in await empty.world.attempts(first.operation.id)][-2:] == ["ABSENT", "ASKING"]
    await work(empty)

    assert await names_made(empty) == ["first", "second"]
    assert empty.world.made() == 2
    assert await empty.world.value("SELECT count(*) FROM capacity_wait") == 0


async def test_job_that_is_run_again_after_its_operation_fell_asleep_does_nothing(empty: Market):
    """Its process died after the commit. Meanwhile stock has come and woken the operation with another job."""
    accepted = await create(empty, "one")
    job = await empty.world.one("SELECT * FROM job WHERE kind = 'CREATE_INSTANCE'")
    await work(empty)
    await stock(empty, 2)
    again = """
        INSERT INTO job (kind, args, priority, project_id, instance_id, run_at, due_at)
        VALUES ($1, $2, 0, $3, $4, now(), now())
    """
    await empty.world.execute(again, job["kind"], job["args"], job["project_id"], job["instance_id"])

    await asyncio.gather(*(empty.world.work_once() for _ in range(2)))
    await work(empty)

    assert (empty.world.made(), empty.world.calls(CREATE)) == (1, 1)
    assert (await empty.world.instance(accepted.instance.id))["status"] != "CREATING"


async def test_wake_up_and_falling_asleep_at_once_lose_no_stock(empty: Market):
    """Whichever commits first, the other sees it."""
    for number in range(10):
        await create(empty, f"race-{number}")
        empty.plan(free=1)
        await asyncio.gather(empty.poll_segment(), empty.world.work_once())
        await work(empty)
        assert len(await names_made(empty)) == number + 1
        await stock(empty, 0)


async def test_provider_that_is_away_after_the_wake_up_ends_nothing(empty: Market):
    accepted = await waiting(empty)
    await stock(empty, 1)
    await empty.world.execute("UPDATE operation SET created_at = created_at - interval '2 days'")
    empty.world.outage()
    for _ in range(3):
        await work(empty)
        await empty.world.hurry()

    operation = await empty.world.operation(accepted.operation.id)
    assert operation["finished_at"] is None
    empty.world.faults()
    await empty.world.age_attempts()
    await empty.world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert empty.world.made() == 1


async def test_create_that_is_repeated_after_a_wake_up_is_matched_once(empty: Market):
    accepted = await waiting(empty)
    empty.world.faults(Fault(FaultKind.RATE_LIMIT, (CREATE,), times=3))
    await stock(empty, 1)

    await empty.world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert empty.world.calls(CREATE) == 4
    events = [each for each in await empty.world.event_types(accepted.instance.id) if each.startswith("wait.")]
    assert events == ["wait.began", "wait.matched"]


async def test_longest_waiter_is_served_first_however_often_it_was_refused(empty: Market):
    """dstack#4246: there, each refusal makes the pause longer, so that the longest waiter retries least often."""
    oldest = await waiting(empty, "oldest")
    refusal = Fault(FaultKind.ERROR, (CREATE,), times=6, status=400, reason="INSUFFICIENT_RESOURCE")
    empty.world.faults(refusal)
    for _ in range(6):
        await stock(empty, 1)
        await work(empty)
        await stock(empty, 0)
    newest = [await waiting(empty, f"newest-{number}") for number in range(3)]
    found = await row(empty, oldest)
    assert found is not None
    assert found["tries"] == 6

    await stock(empty, 1)
    await work(empty)

    assert await names_made(empty) == ["oldest"]
    assert [await row(empty, each) is not None for each in newest] == [True, True, True]


async def test_restarted_server_goes_on_with_a_wait(empty: Market):
    await waiting(empty)
    await empty.world.execute(RESCUE)
    await empty.world.configure(market_calls=10_000, market_hot=HOUR, market_cold=HOUR)

    await stock(empty, 1)
    await work(empty)

    assert await names_made(empty) == ["one"]
