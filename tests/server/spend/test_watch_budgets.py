"""WATCH_BUDGETS: due when something happens to a budget next, and moved in the transaction of every change of burn."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event

from server.db.database import fetch_in
from server.db.tables import Budget
from server.enums import BudgetAction, BudgetPeriod, InstanceStatus, OperationKind
from server.instances import transitions
from server.queue.kinds import WatchBudgets
from server.spend.usage import STOP_LEAD, Usage, read_usage
from server.spend.watch import job_key, wake
from tests.server.spend.test_check_budgets import PRICE, budget, check, events, paid
from tests.support.lifecycle import ask
from tests.support.world import World
from tests.support.wrong_clock import wrong_clock

S = InstanceStatus
SECOND = timedelta(seconds=1)
JOB = "SELECT status, run_at FROM job WHERE unique_key = $1"


async def due(world: World, project_id: UUID | None = None) -> datetime | None:
    rows = await world.rows(JOB, job_key(project_id or world.caller.project_id))
    return rows[0]["run_at"] if rows else None


async def look(world: World) -> None:
    """Run the job that is due now."""
    await world.work_once()


async def usage(world: World, row: Budget) -> Usage:
    async with world.database.read() as session:
        return (await read_usage(fetch_in(session), [row]))[row.id]


async def set_state(world: World, instance_id: UUID, novita_status: str) -> None:
    async with world.database.write() as session:
        await transitions.update(session, instance_id, cause=transitions.Cause(), novita_status=novita_status)


def is_about(one: datetime | None, other: datetime | None) -> bool:
    assert one is not None
    assert other is not None
    return abs(one - other) < 2 * SECOND


async def test_it_waits_for_the_next_threshold_and_then_for_the_end_of_machines(world: World):
    await paid(world, "one", 10)  # 100 micros a second
    row = await budget(world, 100 * 1000, thresholds=(50,), action=BudgetAction.STOP, period=BudgetPeriod.TOTAL)
    await look(world)
    now = (await usage(world, row)).at
    assert is_about(await due(world), now + 490 * SECOND)

    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '500 seconds'")
    async with world.database.write() as session:
        await wake(session, world.caller.project_id)
    await look(world)

    assert await events(world) == [("budget.threshold", 50)]
    at = await usage(world, row)
    assert is_about(await due(world), (at.exhausts_at(row.limit_micros) or at.at) - STOP_LEAD)


async def test_every_change_of_the_burn_rate_moves_it_in_its_own_transaction(world: World):
    one = await paid(world, "one", 1)
    row = await budget(world, 100 * 1000, thresholds=(), period=BudgetPeriod.TOTAL)
    await look(world)
    alone = await due(world)
    assert is_about(alone, (await usage(world, row)).exhausts_at(row.limit_micros))

    two = await world.put(S.STARTING, name="two", novita_id="m-two", price_per_hour_e5=PRICE)
    async with world.database.write() as session:
        await transitions.update(session, two.id, cause=transitions.Cause(), novita_status="running")
        # Not committed: nothing has moved.
        assert await due(world) == alone
    moved = await due(world)
    assert moved is not None
    assert moved <= await world.value("SELECT clock_timestamp()")
    await look(world)
    both = await due(world)
    assert is_about(both, (await usage(world, row)).exhausts_at(row.limit_micros))
    assert both is not None
    assert alone is not None
    assert both < alone - 400 * SECOND

    for instance_id in (one, two.id):
        await set_state(world, instance_id, "exited")
    await look(world)
    assert await due(world) is None  # nothing is spent any more


async def test_a_change_during_a_run_is_not_lost(world: World):
    """The run has released its key, so the change makes a new job; the run's own time does not move that later."""
    await paid(world, "one", 1)
    await budget(world, 100 * 1000, thresholds=(), period=BudgetPeriod.TOTAL)
    async with world.database.write() as session:
        await wake(session, world.caller.project_id, at=await world.value("SELECT now() + interval '1 hour'"))
        await wake(session, world.caller.project_id)
        await wake(session, world.caller.project_id, at=await world.value("SELECT now() + interval '1 hour'"))
    at = await due(world)
    assert at is not None
    assert at <= await world.value("SELECT clock_timestamp()")
    assert await world.value("SELECT count(*) FROM job WHERE kind = 'WATCH_BUDGETS'") == 1


async def test_other_projects_and_their_jobs_stay_as_they_are(world: World):
    other = await world.new_project("other")
    await paid(world, "theirs", 1, project_id=other)
    await paid(world, "mine", 1)
    await budget(world, 100 * 1000)
    await look(world)
    assert await due(world, other) is None
    assert await due(world) is not None


@pytest.mark.parametrize("has_budget", [False, True])
async def test_without_a_budget_a_change_costs_no_statement(world: World, has_budget: bool):
    if has_budget:
        await budget(world, 100 * 1000)
        await look(world)
    row = await world.put(S.STARTING, name="two", novita_id="m-two", price_per_hour_e5=PRICE)
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    engine = world.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        await set_state(world, row.id, "running")
    finally:
        event.remove(engine, "before_cursor_execute", note)
    about_budgets = [each for each in seen if "INSERT INTO job" in each]
    assert len(about_budgets) == has_budget
    assert await world.value("SELECT count(*) FROM cost_entry WHERE ended_at IS NULL") == 1


async def test_machines_end_at_their_time_and_again_if_an_operation_was_in_the_way(world: World):
    one = await paid(world, "one", 1)
    row = await budget(world, 100 * (1 + 121), thresholds=(), action=BudgetAction.STOP, period=BudgetPeriod.TOTAL)
    await look(world)
    at = await usage(world, row)
    assert is_about(await due(world), (at.exhausts_at(row.limit_micros) or at.at) - STOP_LEAD)
    await ask(world, OperationKind.UPDATE, one)
    # The provider was just called, so what it changes will be written soon.
    await world.execute("UPDATE operation SET status = 'RUNNING', phase = 'UPDATING', asked_at = now()")
    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '10 seconds'")
    async with world.database.write() as session:
        await wake(session, world.caller.project_id)
    await world.execute(
        "UPDATE job SET run_at = at, due_at = at FROM (SELECT now() + interval '1 day' AS at) AS later"
        " WHERE kind <> 'WATCH_BUDGETS'"
    )

    await look(world)
    assert await world.value("SELECT count(*) FROM operation WHERE reason = 'BUDGET'") == 0
    again = await due(world)
    assert is_about(again, (await usage(world, row)).at + 10 * SECOND)

    await world.execute(
        """UPDATE operation SET status = 'SUCCEEDED', phase = 'OVER', finished_at = now();
           UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'WATCH_BUDGETS'"""
    )
    await look(world)
    found = await world.one("SELECT kind, instance_id FROM operation WHERE reason = 'BUDGET'")
    assert tuple(found) == ("STOP", one)


async def test_a_lost_run_is_repeated_and_announces_nothing_twice(world: World):
    """Killed after it has released its key."""
    await paid(world, "one", 60)
    await budget(world, 10_000, period=BudgetPeriod.TOTAL)
    await look(world)
    assert await events(world) == [("budget.threshold", 50)]
    for _ in range(2):
        await world.enqueue(WatchBudgets(world.caller.project_id))
        await look(world)
    assert await events(world) == [("budget.threshold", 50)]
    assert await world.value("SELECT count(*) FROM job WHERE kind = 'WATCH_BUDGETS'") == 1


def where_it_is_noon() -> str:
    """A time zone: no period begins or ends during the test."""
    return f"Etc/GMT{datetime.now(UTC).hour - 12:+}"  # its sign is the other way round


@pytest.mark.parametrize("days", [1, -1])
async def test_a_restart_with_a_wrong_clock_announces_nothing_twice_and_ends_nothing(
    world: World, database_url: str, days: int
):
    one = await paid(world, "one", 10)  # 100 micros a second: the limit lasts for ten minutes
    zone = where_it_is_noon()
    row = await budget(world, 60_000, period=BudgetPeriod.DAY, timezone=zone, thresholds=(1,), action=BudgetAction.STOP)
    await look(world)
    expected = [("budget.threshold", 1)]
    assert await events(world) == expected

    async with wrong_clock(world, database_url, timedelta(days=days)):
        for _ in range(2):
            await check(world)
            async with world.database.write() as session:
                await wake(session, world.caller.project_id)
            await look(world)
        assert await events(world) == expected
        at = await usage(world, row)
        assert is_about(await due(world), min(at.period.end or at.at, (at.exhausts_at(60_000) or at.at) - STOP_LEAD))
    await check(world)

    assert await events(world) == expected
    assert (await world.instance(one))["status"] == "READY"
