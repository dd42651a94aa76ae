"""CHECK_BUDGETS: each mark once per period, and machines that end before the limit is spent."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest

from server.db.tables import Budget
from server.enums import BudgetAction, BudgetPeriod, InstanceStatus
from server.instances.provider.reconcile import reconcile
from server.queue.kinds import CheckBudgets
from server.spend.budgets import BudgetChange, BudgetDraft, Exemption, create_budget
from tests.support.lifecycle import hasten
from tests.support.world import World

S = InstanceStatus
EVENTS = """
    SELECT type, data
    FROM (SELECT type, data, seq AS place FROM outbox UNION ALL SELECT type, data, position FROM event) AS written
    WHERE type LIKE 'budget.%' ORDER BY place
"""
PRICE = 36_000  # 0.36 USD an hour: 100 micros a second


async def budget(world: World, limit_micros: int, **fields: Any) -> Budget:
    settings = BudgetChange(
        fields.pop("name", "all"),
        limit_micros,
        fields.pop("thresholds", (50, 80)),
        fields.pop("action", BudgetAction.BLOCK),
        fields.pop("exempt", ()),
    )
    draft = BudgetDraft(settings, fields.pop("period", BudgetPeriod.MONTH), **fields)
    row = (await create_budget(world.database, draft, by=world.caller)).row
    assert row is not None
    return row


async def check(world: World) -> None:
    await world.enqueue(CheckBudgets())
    await world.work_once()


async def events(world: World) -> list[tuple[str, Any]]:
    rows = await world.rows(EVENTS)
    values = [orjson.loads(row["data"])["values"] for row in rows]
    return [
        (row["type"], value.get("threshold") or value.get("action")) for row, value in zip(rows, values, strict=True)
    ]


async def paid(world: World, name: str, seconds: int, status: InstanceStatus = S.READY, **fields: Any) -> UUID:
    """An instance whose machine has been paid for that long, and still is."""
    row = await world.put(
        status,
        name=name,
        novita_id=f"m-{name}",
        novita_status="running",
        price_per_hour_e5=PRICE,
        region="AS-SGP-02",
        **fields,
    )
    await world.execute(
        """INSERT INTO cost_entry (project_id, instance_id, machine, labels, price_e5, product_name, region,
                                   run_began_at, began_at)
           SELECT project_id, id, novita_id, labels, price_per_hour_e5, product_name, region, at, at
           FROM instance, CAST(now() - make_interval(secs => $2) AS timestamptz) AS at WHERE id = $1""",
        row.id,
        float(seconds),
    )
    return row.id


async def test_each_threshold_is_announced_once_also_by_many_runs_at_once(world: World):
    await budget(world, 10_000, period=BudgetPeriod.TOTAL)
    await check(world)
    assert await events(world) == []

    await paid(world, "one", 60)
    workers = [world.worker_with(world.novita) for _ in range(3)]
    for _ in range(3):
        await world.enqueue(CheckBudgets())
    await asyncio.gather(*(each.work_once() for each in workers))
    assert await events(world) == [("budget.threshold", 50)]

    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '60 seconds'")
    await check(world)
    await check(world)
    assert await events(world) == [
        ("budget.threshold", 50),
        ("budget.threshold", 80),
        ("budget.exhausted", "BLOCK"),
    ]


async def test_a_new_period_is_announced_and_has_its_thresholds_again(world: World):
    row = await budget(world, 10_000, period=BudgetPeriod.DAY, thresholds=(1,))
    await paid(world, "one", 1)
    await check(world)
    assert await events(world) == [("budget.threshold", 1)]

    # As if the marks were of yesterday.
    await world.execute("UPDATE budget_mark SET period_began_at = period_began_at - interval '1 day'")
    await check(world)
    await check(world)

    assert await events(world) == [("budget.threshold", 1), ("budget.reset", None), ("budget.threshold", 1)]
    # The clock goes back, and on again.
    await world.execute(
        """INSERT INTO budget_mark SELECT budget_id, period_began_at + interval '2 days', mark FROM budget_mark
           WHERE period_began_at < (SELECT max(period_began_at) FROM budget_mark)"""
    )
    await check(world)
    assert len(await events(world)) == 3
    assert row.period == "DAY"


@pytest.mark.parametrize(
    ("action", "status", "kind"), [(BudgetAction.STOP, "STOPPING", "STOP"), (BudgetAction.DELETE, "DELETING", "DELETE")]
)
async def test_machines_end_two_minutes_before_the_limit_is_spent_except_exempt_ones(
    world: World, action: BudgetAction, status: str, kind: str
):
    one = await paid(world, "one", 10)
    keep = await paid(world, "keep", 10, labels={"keep": "yes"})
    other = await paid(world, "other", 10, project_id=await world.new_project("other"))
    # Two machines cost 200 micros a second: spent in 125 s.
    row = await budget(world, 200 * (10 + 125), action=action, exempt=(Exemption("keep"),))
    await check(world)
    assert (await world.instance(one))["status"] == "READY"

    await world.execute("UPDATE budget SET limit_micros = 200 * (10 + 110) WHERE id = $1", row.id)
    await check(world)
    await check(world)

    instance = await world.instance(one)
    assert (instance["status"], instance["status_reason"]) == (status, "BUDGET")
    (operation,) = await world.rows("SELECT kind, reason, requested_by FROM operation")
    assert tuple(operation) == (kind, "BUDGET", None)
    assert {(await world.instance(each))["status"] for each in (keep, other)} == {"READY"}


async def test_an_end_that_failed_is_repeated_after_a_while(world: World):
    one = await paid(world, "one", 10)
    await budget(world, 1, action=BudgetAction.STOP)
    await check(world)
    await world.execute(
        """UPDATE operation SET status = 'FAILED', phase = 'OVER', error_code = 'X', finished_at = now();
           UPDATE instance SET status = 'READY', ready_at = now() WHERE id = (SELECT instance_id FROM operation);"""
    )
    await check(world)
    assert await world.value("SELECT count(*) FROM operation") == 1

    await world.execute("UPDATE operation SET finished_at = now() - interval '6 minutes'")
    await check(world)
    assert await world.value("SELECT count(*) FROM operation WHERE instance_id = $1", one) == 2


@pytest.mark.parametrize("action", [BudgetAction.STOP, BudgetAction.DELETE])
async def test_create_whose_machine_is_paid_for_fails_and_its_machine_is_removed(world: World, action: BudgetAction):
    accepted = await world.create("one")
    await world.work_until_status(accepted.instance.id, S.STARTING)
    hasten(world)
    await reconcile(world.database, world.novita)  # its machine runs, and is paid for
    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '1 hour'")
    price = (await world.instance(accepted.instance.id))["price_per_hour_e5"] * 10
    await budget(world, price + price // 60, action=action, period=BudgetPeriod.TOTAL)

    # Its own jobs are elsewhere.
    await world.execute("UPDATE job SET run_at = run_at + interval '1 hour', due_at = due_at + interval '1 hour'")
    await check(world)
    await world.work_until_status(accepted.instance.id, S.DELETED)

    create, delete = await world.rows("SELECT kind, status, reason, error_code FROM operation ORDER BY created_at")
    assert tuple(create) == ("CREATE", "FAILED", None, "BUDGET_EXCEEDED")
    assert tuple(delete) == ("DELETE", "SUCCEEDED", "BUDGET", None)
    assert world.machines() == []
    spent = await world.value("SELECT sum(amount_micros) FROM cost_entry WHERE ended_at IS NOT NULL")
    assert spent <= price + price // 60 + price * timedelta(minutes=2) / timedelta(hours=1)


async def test_a_real_machine_is_stopped_and_overshoots_by_less_than_two_minutes_of_burn(world: World):
    accepted = await world.create("one")
    await world.work_until_status(accepted.instance.id, S.READY)
    await world.execute("UPDATE cost_entry SET began_at = began_at - interval '1 hour'")
    price = (await world.instance(accepted.instance.id))["price_per_hour_e5"] * 10
    await budget(world, price + price // 60, action=BudgetAction.STOP, period=BudgetPeriod.TOTAL)

    await world.enqueue(CheckBudgets())
    await world.work_until_status(accepted.instance.id, S.EXITED)

    spent = await world.value("SELECT sum(amount_micros) FROM cost_entry")
    # The provider's times are whole seconds.
    assert price * 3599 / 3600 <= spent <= price + price // 60 + price * timedelta(minutes=2) / timedelta(hours=1)
    assert (await world.instance(accepted.instance.id))["status_reason"] in ("BUDGET", None)
