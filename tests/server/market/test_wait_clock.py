"""Waits while the database's clock is set, or after a worker of another release."""

from datetime import timedelta

import pytest

from server.market.refusals import QueuedBehind
from tests.server.market.polls import NAME, REGION, Market
from tests.server.market.waiters import CREATE, names_made, row, stock, waiting, work

DAY = timedelta(days=1)
MOVE = (
    "UPDATE capacity_wait SET since = since + $1::interval, until = until + $1::interval",
    "UPDATE offer SET seen_at = seen_at + $1::interval, changed_at = changed_at + $1::interval",
    "UPDATE offer_change SET at = at + $1::interval",
    "UPDATE market_segment SET polled_at = polled_at + $1::interval, seen_at = seen_at + $1::interval",
    "UPDATE market_region SET polled_at = polled_at + $1::interval, seen_at = seen_at + $1::interval",
    "UPDATE market_call SET at = at + $1::interval",
    "UPDATE job SET run_at = run_at + $1::interval, due_at = due_at + $1::interval",
    """UPDATE operation SET created_at = created_at + $1::interval, wanted = jsonb_set(wanted, '{wait,until}',
           to_jsonb((wanted #>> '{wait,until}')::timestamptz + $1::interval))""",
)


async def set_clock(market: Market, by: timedelta) -> None:
    """As if it had been set by so much after all that is known was written."""
    for statement in MOVE:
        await market.world.execute(statement, -by)


@pytest.mark.parametrize("by", [DAY, -DAY])
async def test_clock_that_is_set_by_a_day_loses_no_wait_and_changes_no_order(empty: Market, by: timedelta):
    accepted = [await waiting(empty, name) for name in ("first", "second")]
    await empty.world.execute("UPDATE capacity_wait SET until = until + interval '2 days'")
    await empty.world.execute(
        """UPDATE operation SET wanted = jsonb_set(wanted, '{wait,until}',
               to_jsonb((wanted #>> '{wait,until}')::timestamptz + interval '2 days'))"""
    )
    await set_clock(empty, by)
    accepted.append(await waiting(empty, "third"))

    for number in range(1, 4):
        await stock(empty, 1)
        empty.world.catalog = empty.catalog()
        if number < 3:
            with pytest.raises(QueuedBehind):
                await empty.world.create("pushy", product_name=NAME, regions=(REGION,), billing="SPOT")
        await work(empty)
        assert len(await names_made(empty)) == number

    assert await names_made(empty) == ["first", "second", "third"]
    assert [await row(empty, each) for each in accepted] == [None] * 3
    assert empty.world.made() == 3


async def test_wait_that_a_worker_of_an_older_release_has_ended_keeps_no_place(empty: Market):
    """It makes the machine as for any create, and knows no waits."""
    over = await waiting(empty, "over")
    await waiting(empty, "next")
    await stock(empty, 1)
    await empty.world.execute("DELETE FROM job WHERE kind = 'CREATE_INSTANCE'")
    await empty.world.execute(
        "UPDATE operation SET status = 'SUCCEEDED', finished_at = now() WHERE id = $1", over.operation.id
    )
    await stock(empty, 1)
    await work(empty)
    assert (await names_made(empty), empty.world.calls(CREATE)) == (["next"], 1)

    await empty.world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'EXPIRE_WAIT'")
    await work(empty)
    assert await row(empty, over) is None
