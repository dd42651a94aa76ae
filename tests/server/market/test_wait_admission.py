"""What a waiting operation may cost, for how long it runs, and when it may expect its machine."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from server.clock import now
from server.enums import BudgetAction, BudgetPeriod, InstanceStatus
from server.errors import BudgetExceeded, OperationInProgress
from server.instances.commands.lifecycle import Target
from server.instances.commands.retry import retry_operation
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.idempotency import Accepted
from server.instances.limits.spec import Lifetime
from server.market.outlook import next_offer_at
from server.market.waiting_view import WaitBlocker, read_waits
from server.market.waits import Needs
from server.spend.budgets import BudgetChange, BudgetDraft, delete_budget, insert_budget, update_budget
from server.spend.quotas import QuotaDraft, set_quota
from tests.server.market.polls import CLUSTER, NAME, PRODUCT, REGION, Market
from tests.server.market.waiters import CREATE, HOUR, create, names_made, row, stock, waiting, work
from tests.support.aging import AGE

S = InstanceStatus


async def budget(market: Market, limit_micros: int, *, label: tuple[str, str] | None = None) -> UUID:
    settings = BudgetChange("budget", limit_micros, thresholds=(), action=BudgetAction.BLOCK, exempt=())
    draft = BudgetDraft(settings, BudgetPeriod.TOTAL, label=label)
    async with market.world.database.write() as session:
        return (await insert_budget(session, draft, uuid4(), project_id=market.world.caller.project_id)).id


async def quota(market: Market, maximum: int | None) -> None:
    async with market.world.database.write() as session:
        await set_quota(session, QuotaDraft(max_instances=maximum), project_id=market.world.caller.project_id)


async def blocked(market: Market, accepted: Accepted) -> tuple[Any, ...]:
    found = await row(market, accepted)
    assert found is not None
    operation = await market.world.operation(accepted.operation.id)
    return found["blocked_by"], found["job_id"], found["tries"], operation["reserved_price_e5"]


async def test_used_up_budget_lets_it_wait_until_the_budget_has_more(empty: Market):
    accepted = await waiting(empty)
    budget_id = await budget(empty, 1)
    await stock(empty, 1)
    await work(empty)
    assert await blocked(empty, accepted) == ("BUDGET", None, 0, None)
    assert (empty.world.calls(CREATE), await names_made(empty)) == (0, [])
    await stock(empty, 2)  # another offer does not help
    assert (await blocked(empty, accepted))[1] is None

    async with empty.world.database.write() as session:
        change = BudgetChange(limit_micros=1_000_000_000)
        await update_budget(session, budget_id, change, project_id=empty.world.caller.project_id)
    await work(empty)

    assert await names_made(empty) == ["one"]
    operation = await empty.world.operation(accepted.operation.id)
    assert operation["reserved_price_e5"] == 19_500


async def test_deleted_budget_blocks_no_more(empty: Market):
    accepted = await waiting(empty)
    budget_id = await budget(empty, 1)
    await stock(empty, 1)
    await work(empty)
    assert (await blocked(empty, accepted))[0] == "BUDGET"

    async with empty.world.database.write() as session:
        await delete_budget(session, budget_id, project_id=empty.world.caller.project_id)
    await work(empty)

    assert await names_made(empty) == ["one"]


async def test_used_up_quota_lets_it_wait_and_the_next_that_it_allows_goes_on(empty: Market):
    """What waits counts in no quota."""
    first, second = await waiting(empty, "first"), await waiting(empty, "second")
    await quota(empty, 1)

    await stock(empty, 2)
    await work(empty)
    assert await names_made(empty) == ["first"]
    assert await row(empty, first) is None
    assert await blocked(empty, second) == ("QUOTA", None, 0, None)
    assert empty.world.calls(CREATE) == 1
    # It is looked at again after a minute, whatever has changed; a change of the quota is noticed at once.
    seconds = "SELECT extract(epoch FROM run_at - now()) FROM job WHERE kind = 'EXPIRE_WAIT'"
    assert 0 < await empty.world.value(seconds) <= 60

    await quota(empty, 2)
    await work(empty)
    assert await names_made(empty) == ["first", "second"]


async def test_offer_that_is_there_at_acceptance_is_admitted_then(empty: Market):
    await stock(empty, 1)
    empty.world.catalog = empty.catalog()
    await budget(empty, 1)
    before = await empty.world.counts()

    with pytest.raises(BudgetExceeded):
        await create(empty, "one")

    assert await empty.world.counts() == before
    assert await empty.world.value("SELECT count(*) FROM capacity_wait") == 0


async def test_offer_that_comes_between_acceptance_and_the_first_run_is_admitted_too(empty: Market):
    """Accepted without an offer, it has reserved nothing."""
    accepted = await create(empty, "one")
    await budget(empty, 1)
    await stock(empty, 1)
    empty.world.catalog = empty.catalog()
    await work(empty)

    assert (await blocked(empty, accepted))[0] == "BUDGET"
    assert empty.world.calls(CREATE) == 0


async def blocker(market: Market, accepted: Accepted) -> WaitBlocker:
    by = market.world.caller.project_id
    return (await read_waits(market.world.database.raw, [accepted.operation.id], project_id=by))[
        accepted.operation.id
    ].blocked_by


async def test_place_says_what_the_operation_waits_for(empty: Market):
    dear = await waiting(empty, "dear", max_hourly_price_e5=1_000)
    first, second = await waiting(empty, "first"), await waiting(empty, "second")
    assert [await blocker(empty, each) for each in (dear, first, second)] == [WaitBlocker.CAPACITY] * 3

    await stock(empty, 1)  # wakes the first, which has not run yet

    assert [await blocker(empty, each) for each in (dear, second)] == [WaitBlocker.PRICE, WaitBlocker.QUEUE]
    await budget(empty, 1)
    await work(empty)
    blockers = [await blocker(empty, each) for each in (dear, first, second)]
    assert blockers == [WaitBlocker.PRICE, WaitBlocker.BUDGET, WaitBlocker.BUDGET]


async def test_higher_priority_that_a_budget_blocks_blocks_no_other(empty: Market):
    costly = await waiting(empty, "costly", priority=100, labels={"team": "a"})
    await budget(empty, 1, label=("team", "a"))
    await waiting(empty, "free", priority=0)

    await stock(empty, 1)
    await work(empty)

    assert await names_made(empty) == ["free"]
    assert (await blocked(empty, costly))[0] == "BUDGET"


async def test_longest_run_counts_from_the_machine_and_a_deadline_ends_the_wait(empty: Market):
    runs = await waiting(empty, "runs", lifetime=Lifetime(max_duration=timedelta(minutes=90)))
    ends = await waiting(empty, "ends", lifetime=Lifetime(deadline=now() + timedelta(minutes=30)))
    await empty.world.execute(AGE, ends.instance.id, timedelta(minutes=31))
    await empty.world.execute(
        "UPDATE job SET run_at = now(), due_at = now() WHERE unique_key = $1", f"lifetime {ends.instance.id}"
    )
    await work(empty)
    instance = await empty.world.instance(ends.instance.id)
    assert (instance["status"], await row(empty, ends)) == ("DELETED", None)
    await empty.world.execute(
        "UPDATE instance SET created_at = created_at - interval '2 hours' WHERE id = $1", runs.instance.id
    )
    await stock(empty, 1)
    await empty.world.work_until_status(runs.instance.id, S.READY)
    left = await empty.world.value(
        "SELECT extract(epoch FROM lifetime_due_at - now()) FROM instance WHERE id = $1", runs.instance.id
    )
    assert 80 * 60 < left <= 90 * 60


async def test_estimate_is_the_median_gap_between_the_times_at_which_such_offers_came(empty: Market):
    world = empty.world
    await world.execute("DELETE FROM offer_change WHERE product_name = $1", NAME)
    needs = Needs(NAME, 1, [REGION], ["spot"])

    async def came(*minutes_ago: int, mode: str = "spot") -> None:
        for ago in minutes_ago:
            for is_available, later in ((True, 0), (False, 1)):
                await world.execute(
                    """INSERT INTO offer_change (region, product_id, product_name, mode, gpu_count, price_e5,
                                                 is_available, inventory, at)
                       VALUES ($1, '26', $2, $3, 1, 19500, $4, 'low', now() - make_interval(mins => $5))""",
                    REGION,
                    NAME,
                    mode,
                    is_available,
                    ago - later,
                )

    async def minutes() -> float | None:
        async with world.database.read() as session:
            at = await next_offer_at(session, needs)
        return None if at is None else round((at - now()) / timedelta(minutes=1))

    assert await minutes() is None
    await came(500)
    assert await minutes() is None
    await came(400, 370, 360)  # gaps of 100, 30 and 10 minutes
    await came(399, 398, 397, mode="onDemand")
    assert await minutes() == 30

    accepted = await waiting(empty)
    instance, operation = await world.instance(accepted.instance.id), await world.operation(accepted.operation.id)
    assert instance["estimated_ready_at"] == operation["estimated_ready_at"] is not None
    assert timedelta(minutes=29) < operation["estimated_ready_at"] - now() < timedelta(minutes=31)


async def test_retry_of_a_wait_that_is_over_waits_as_long_again(empty: Market):
    accepted = await waiting(empty, priority=80)
    await empty.world.execute("UPDATE capacity_wait SET until = now() - interval '1 second'")
    await empty.world.work_until_over(accepted.operation.id)

    again = await retry_operation(empty.world.database, accepted.operation.id, by=empty.world.caller)
    await work(empty)
    found = await row(empty, again)
    assert found is not None
    assert (found["priority"], found["until"] - again.operation.created_at > timedelta(minutes=59)) == (80, True)
    assert found["until"] - again.operation.created_at < HOUR + timedelta(minutes=1)


async def test_retry_of_a_wait_that_finds_an_offer_at_once_is_admitted(empty: Market):
    """The failed one has reserved nothing."""
    accepted = await waiting(empty)
    await empty.world.execute("UPDATE capacity_wait SET until = now() - interval '1 second'")
    await empty.world.work_until_over(accepted.operation.id)
    await budget(empty, 1)
    await stock(empty, 1)
    empty.world.catalog = empty.catalog()

    again = await retry_operation(empty.world.database, accepted.operation.id, by=empty.world.caller)
    await work(empty)

    assert (await blocked(empty, again))[0] == "BUDGET"
    assert empty.world.calls(CREATE) == 0


@pytest.mark.parametrize(("word", "free", "at_once"), [("low", 1, 1), ("normal", 4, 2), ("high", 5, 4)])
async def test_at_most_one_create_is_refused_for_each_wake_up(empty: Market, word: str, free: int, at_once: int):
    """As many run at once as the word stands for at least, then one after another."""
    if word == "normal":
        empty.world.simulator.world.catalog.taken[PRODUCT, CLUSTER] = 4
    for number in range(free + 4):
        await create(empty, f"one-{number}")
    await work(empty)

    await stock(empty, free)
    assert await empty.world.value("SELECT inventory FROM offer WHERE product_id = '26' AND mode = 'spot'") == word
    assert await empty.world.value("SELECT count(*) FROM capacity_wait WHERE job_id IS NOT NULL") == at_once
    await work(empty)

    assert (empty.world.made(), empty.world.calls(CREATE)) == (free, free + 1)


async def test_operations_that_wait_make_their_segments_hot(empty: Market):
    """Polled eleven minutes ago: only hot ones are due."""
    await empty.world.execute("UPDATE market_segment SET polled_at = now() - interval '11 minutes'")
    await waiting(empty)
    await empty.poll()

    polled = "SELECT region, mode FROM market_segment WHERE polled_at > now() - interval '5 minutes'"
    assert [tuple(each) for each in await empty.world.rows(polled)] == [(REGION, "spot")]


async def test_instance_that_waits_is_not_updated(empty: Market):
    accepted = await waiting(empty)

    with pytest.raises(OperationInProgress):
        await update_instance(
            empty.world.database,
            Target(accepted.instance.id),
            UpdateDraft(labels={"team": "b"}),
            by=empty.world.caller,
        )

    assert (await empty.world.instance(accepted.instance.id))["labels"] == "{}"
