"""Budgets: what is accepted, what counts, and what is refused in the transaction that would accept it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schema import ids
from server.db.database import fetch_in
from server.db.tables import Budget
from server.enums import BudgetAction, BudgetPeriod, InstanceStatus, OperationKind, Role
from server.errors import BudgetExceeded
from server.instances import transitions
from server.instances.commands.adopt import AdoptDraft, adopt_instance
from server.instances.commands.create_rows import CreateBatcher
from server.instances.commands.lifecycle import Target
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.limits.spec import Lifetime, LifetimeChange
from server.lifetimes.extend import Extension, extend_lifetime
from server.spend.budgets import BudgetChange, BudgetDraft, create_budget, update_budget
from server.spend.periods import period_at
from server.spend.usage import Usage, read_usage
from tests.support.api import Api
from tests.support.api_server import serving
from tests.support.lifecycle import ask
from tests.support.machines import make_running
from tests.support.world import World

HOUR = timedelta(hours=1)
LIFETIME = Lifetime(max_duration=HOUR)
CREATE = """mutation ($input: CreateBudgetInput!) { createBudget(input: $input) {
    replayed budget { id name timezone thresholds action scope { project label { key value } tokenId }
      limit { amountMicros } spent { amountMicros } remaining { amountMicros } resetsAt state }
    errors { code path } } }"""


async def budget(world: World, limit_micros: int, **fields: Any) -> Budget:
    settings = BudgetChange(
        fields.pop("name", "all"),
        limit_micros,
        fields.pop("thresholds", (100,)),
        fields.pop("action", BudgetAction.BLOCK),
        (),
    )
    draft = BudgetDraft(settings, fields.pop("period", BudgetPeriod.TOTAL), **fields)
    row = (await create_budget(world.database, draft, by=world.caller)).row
    assert row is not None
    return row


async def usage(world: World, row: Budget) -> Usage:
    async with world.database.read() as session:
        return (await read_usage(fetch_in(session), [row]))[row.id]


async def hourly(world: World) -> int:
    """What one instance may cost in an hour, at most: read from the first that is accepted."""
    accepted = await world.create("price", lifetime=LIFETIME)
    price = (await world.operation(accepted.operation.id))["reserved_price_e5"]
    await world.work_until_over(await world.delete(accepted.instance.id))
    return price * 10


async def create_all(batchers: list[CreateBatcher], world: World, many: int) -> list[Any]:
    async def one(number: int) -> Any:
        creates, world.creates = world.creates, batchers[number % len(batchers)]
        try:
            coroutine = world.create(f"i{number}", lifetime=LIFETIME)
        finally:
            world.creates = creates
        return await coroutine

    return await asyncio.gather(*(one(number) for number in range(many)), return_exceptions=True)


async def test_of_64_at_once_exactly_those_are_accepted_that_the_budget_is_for(world: World):
    price = await hourly(world)
    row = await budget(world, 10 * price)
    before = await world.counts()

    outcomes = await create_all([CreateBatcher(world.database) for _ in range(4)], world, 64)

    refused = [each for each in outcomes if isinstance(each, BudgetExceeded)]
    assert (len(outcomes) - len(refused), len(refused)) == (10, 54)
    assert {(each.budget_id, each.remaining_micros, each.needed_micros) for each in refused} == {(row.id, 0, price)}
    after = await world.counts()
    assert (after["instance"] - before["instance"], after["operation"] - before["operation"]) == (10, 10)
    assert (await usage(world, row)).reserved == 10 * price


async def test_what_was_reserved_becomes_committed_and_is_free_after_a_failure(world: World):
    price = await hourly(world)
    row = await budget(world, 2 * price)
    one, two = await world.create("one", lifetime=LIFETIME), await world.create("two", lifetime=LIFETIME)
    with pytest.raises(BudgetExceeded):
        await world.create("three", lifetime=LIFETIME)

    await world.work_until_status(one.instance.id, InstanceStatus.READY)
    await world.work_until_status(two.instance.id, InstanceStatus.READY)
    used = await usage(world, row)
    prices = await world.rows("SELECT price_per_hour_e5 FROM instance WHERE status = 'READY'")
    assert used.reserved == 0
    assert used.spent + used.committed == pytest.approx(10 * sum(each[0] for each in prices), rel=0.01)

    await world.work_until_over(await world.delete(one.instance.id))
    assert (await usage(world, row)).used < price * 1.01
    await world.create("four", lifetime=LIFETIME)


async def test_a_machine_without_a_hard_end_counts_for_the_horizon(world: World):
    price = await hourly(world)
    row = await budget(world, price, horizon=timedelta(minutes=30))
    await world.create("one")
    await world.create("two")
    assert (await usage(world, row)).reserved == price
    with pytest.raises(BudgetExceeded):
        await world.create("three")


async def test_a_machine_that_is_seen_before_the_response_to_its_start_counts_until_its_hard_end(world: World):
    one = (await world.create("one", lifetime=Lifetime(max_duration=10 * HOUR))).instance.id
    await world.work_until_status(one, InstanceStatus.READY)
    price = (await world.instance(one))["price_per_hour_e5"] * 10
    row = await budget(world, 12 * price)
    await ask(world, OperationKind.STOP, one)
    await world.work_until_status(one, InstanceStatus.EXITED)
    await ask(world, OperationKind.START, one)
    spent = (await usage(world, row)).spent
    assert (await usage(world, row)).used - spent == 10 * price  # reserved

    async with world.database.write() as session:
        await transitions.update(session, one, cause=transitions.Cause(), novita_status="starting")

    used = await usage(world, row)
    assert (await world.instance(one))["run_accepted_at"] is None
    assert (used.reserved, used.committed) == (0, 10 * price)
    with pytest.raises(BudgetExceeded):
        await world.create("two", lifetime=Lifetime(max_duration=3 * HOUR))


async def test_only_budgets_of_the_scope_refuse(world: World):
    price = await hourly(world)
    other = await world.new_caller()
    await budget(world, price // 2, name="label", label=("team", "a"))
    await budget(world, price // 2, name="token", token_id=other.token_id)
    await budget(world, 1, name="notify", action=BudgetAction.NOTIFY)

    await world.create("one", labels={"team": "b"})
    with pytest.raises(BudgetExceeded, match="label"):
        await world.create("two", labels={"team": "a"})
    with pytest.raises(BudgetExceeded, match="token"):
        await world.create("three", by=other)


async def test_a_refused_create_with_a_key_may_be_repeated_and_an_accepted_one_is_replayed(world: World):
    price = await hourly(world)
    row = await budget(world, price)
    first = await world.create("one", idempotency_key="k1", lifetime=LIFETIME)
    with pytest.raises(BudgetExceeded):
        await world.create("two", idempotency_key="k2", lifetime=LIFETIME)
    again = await world.create("one", idempotency_key="k1", lifetime=LIFETIME)
    assert (again.instance.id, again.replayed) == (first.instance.id, True)

    async with world.database.write() as session:
        await update_budget(session, row.id, BudgetChange(limit_micros=2 * price), project_id=row.project_id)
    await world.create("two", idempotency_key="k2", lifetime=LIFETIME)


async def test_a_start_and_an_extension_are_admitted_as_well(world: World):
    accepted = await world.create("one", lifetime=LIFETIME)
    one = accepted.instance.id
    await world.work_until_status(one, InstanceStatus.READY)
    price = (await world.instance(one))["price_per_hour_e5"] * 10
    row = await budget(world, 2 * price)

    extended = Extension(by=HOUR / 2)
    await extend_lifetime(world.database, Target(one), extended, by=world.caller)
    version = (await world.instance(one))["version"]
    with pytest.raises(BudgetExceeded):
        await extend_lifetime(world.database, Target(one), Extension(by=HOUR), by=world.caller)
    assert (await world.instance(one))["version"] == version

    await ask(world, OperationKind.STOP, one)
    await world.work_until_status(one, InstanceStatus.EXITED)
    async with world.database.write() as session:
        await update_budget(session, row.id, BudgetChange(limit_micros=price // 2), project_id=row.project_id)
    before = await world.counts()
    with pytest.raises(BudgetExceeded):
        await ask(world, OperationKind.START, one)
    assert await world.counts() == before


async def test_an_adopted_machine_counts_and_is_never_refused(world: World):
    (machine,) = await make_running(world, 1, http=False)
    row = await budget(world, 1)

    adopted = await adopt_instance(world.database, world.reader, AdoptDraft(machine), by=world.caller)

    await world.work_until_status(adopted.id, InstanceStatus.READY)
    price = (await world.instance(adopted.id))["price_per_hour_e5"]
    used = await usage(world, row)
    assert (used.burn_e5, used.committed) == (price, price * 10)  # without a hard end: one hour
    with pytest.raises(BudgetExceeded):
        await world.create("one")


async def change_limits(world: World, instance_id: UUID, limits: Lifetime | None) -> None:
    draft = UpdateDraft(lifetime=LifetimeChange(limits))
    await update_instance(world.database, Target(instance_id), draft, by=world.caller)


async def test_new_limits_of_a_running_instance_are_admitted_as_an_extension(world: World):
    accepted = await world.create("one", lifetime=LIFETIME)
    one = accepted.instance.id
    await world.work_until_status(one, InstanceStatus.READY)
    price = (await world.instance(one))["price_per_hour_e5"] * 10
    await budget(world, round(1.5 * price), horizon=timedelta(days=1))
    before = await world.counts()

    for limits in (Lifetime(max_duration=10 * HOUR), Lifetime(heartbeat=HOUR), None):
        with pytest.raises(BudgetExceeded):
            await change_limits(world, one, limits)
    assert await world.counts() == before

    await change_limits(world, one, Lifetime(max_duration=HOUR * 1.3))
    with pytest.raises(BudgetExceeded):
        await change_limits(world, one, Lifetime(max_duration=HOUR * 1.6))
    await change_limits(world, one, Lifetime(max_duration=HOUR / 2))


async def test_time_that_another_token_adds_counts_for_the_token_that_requested_the_run(world: World):
    one = (await world.create("one", lifetime=LIFETIME)).instance.id
    await world.work_until_status(one, InstanceStatus.READY)
    price = (await world.instance(one))["price_per_hour_e5"] * 10
    assert world.caller.token_id is not None
    await budget(world, round(1.5 * price), token_id=world.caller.token_id)
    other = await world.new_caller()
    await budget(world, 1, name="other", token_id=other.token_id)

    await extend_lifetime(world.database, Target(one), Extension(by=HOUR / 4), by=other)
    with pytest.raises(BudgetExceeded):
        await extend_lifetime(world.database, Target(one), Extension(by=HOUR), by=other)
    draft = UpdateDraft(lifetime=LifetimeChange(Lifetime(max_duration=10 * HOUR)))
    with pytest.raises(BudgetExceeded):
        await update_instance(world.database, Target(one), draft, by=other)


async def test_a_hard_end_before_the_horizon_and_limits_of_a_stopped_instance_need_nothing(world: World):
    accepted = await world.create("one")
    one = accepted.instance.id
    await world.work_until_status(one, InstanceStatus.READY)
    await budget(world, 1, horizon=2 * HOUR)
    await change_limits(world, one, Lifetime(max_duration=HOUR))
    with pytest.raises(BudgetExceeded):
        await change_limits(world, one, Lifetime(max_duration=3 * HOUR))

    await ask(world, OperationKind.STOP, one)
    await world.work_until_status(one, InstanceStatus.EXITED)
    await change_limits(world, one, None)


async def test_an_entry_over_the_beginning_of_a_period_counts_pro_rata(world: World):
    row = await budget(world, 10**9, period=BudgetPeriod.DAY, timezone="Asia/Kolkata")
    instance = await world.put(InstanceStatus.EXITED, novita_id="m1", novita_status="exited", price_per_hour_e5=36_000)
    begin = period_at("DAY", "Asia/Kolkata", datetime.now(UTC)).begin
    await world.execute(
        """INSERT INTO cost_entry (project_id, instance_id, machine, labels, price_e5, product_name, run_began_at,
                                   began_at, ended_at, amount_micros)
           VALUES ($1, $2, 'm1', '{}', 36000, 'x', $3, $3, $4, 720000)""",
        row.project_id,
        instance.id,
        begin - HOUR,
        begin + HOUR,
    )
    assert (await usage(world, row)).spent == 360_000
    await world.execute("UPDATE cost_entry SET is_summed = true")
    assert (await usage(world, row)).spent == 360_000


@pytest.mark.parametrize(
    ("period", "zone", "begin", "end"),
    [
        ("DAY", "UTC", "2026-03-10T00:00", "2026-03-11T00:00"),
        ("DAY", "America/New_York", "2026-03-10T04:00", "2026-03-11T04:00"),
        ("WEEK", "Europe/Berlin", "2026-03-08T23:00", "2026-03-15T23:00"),
        ("MONTH", "Europe/Berlin", "2026-02-28T23:00", "2026-03-31T22:00"),  # the clocks change on the 29th
    ],
)
def test_periods_begin_at_midnight_of_their_zone(period: str, zone: str, begin: str, end: str):
    found = period_at(period, zone, datetime(2026, 3, 10, 12, tzinfo=UTC))
    assert (found.begin.isoformat()[:16], (found.end or found.begin).isoformat()[:16]) == (begin, end)


def test_it_is_known_when_the_limit_will_be_spent():
    moment = datetime(2026, 3, 10, 12, tzinfo=UTC)
    used = Usage(period_at("DAY", "UTC", moment), moment, spent=100, committed=0, reserved=0, burn_e5=36_000)
    assert used.exhausts_at(100) == moment
    assert used.exhausts_at(360_100) == moment + HOUR
    assert used.exhausts_at(360_000 * 13) is None
    used.burn_e5 = 0
    assert used.exhausts_at(360_100) is None


# The API.


async def admin(api: Api) -> str:
    return (await api.world.new_token(role=Role.ADMIN))[0]


def wish(**fields: Any) -> dict[str, Any]:
    return {
        "name": "all",
        "scope": {"project": True},
        "period": "MONTH",
        "limit": {"amountMicros": 5_000_000, "currency": "USD"},
        **fields,
    }


async def test_a_budget_is_created_changed_listed_and_deleted(api: Api):
    token = await admin(api)
    payload = (await api.ask(CREATE, token=token, input=wish(idempotencyKey="k"))).data["createBudget"]
    made = payload["budget"]
    assert (made["thresholds"], made["action"], made["state"]) == ([50, 80, 100], "BLOCK", "OK")
    assert made["remaining"] == {"amountMicros": 5_000_000}
    assert made["scope"] == {"project": True, "label": None, "tokenId": None}
    assert (await api.ask(CREATE, token=token, input=wish(idempotencyKey="k"))).data["createBudget"]["replayed"]
    taken = (await api.ask(CREATE, token=token, input=wish())).data["createBudget"]
    assert [error["code"] for error in taken["errors"]] == ["BUDGET_NAME_TAKEN"]

    refused = await api.create(name="web")
    assert refused["errors"] == []
    change = """mutation ($id: ID!) { updateBudget(input: {id: $id, limit: {amountMicros: 1, currency: "USD"}}) {
        budget { limit { amountMicros } } errors { code } } }"""
    changed = (await api.ask(change, token=token, id=made["id"])).data["updateBudget"]
    assert changed == {"budget": {"limit": {"amountMicros": 1}}, "errors": []}
    (error,) = (await api.create(name="web2"))["errors"]
    assert (error["__typename"], error["code"]) == ("BudgetExceeded", "BUDGET_EXCEEDED")

    listed = (await api.ask("{ budgets { totalCount nodes { id name } } }")).data["budgets"]
    assert listed == {"totalCount": 1, "nodes": [{"id": made["id"], "name": "all"}]}
    assert (await api.ask("query ($id: ID!) { node(id: $id) { id } }", id=made["id"])).data["node"]["id"] == made["id"]
    delete = "mutation ($id: ID!) { deleteBudget(input: {id: $id}) { deletedId errors { code } } }"
    assert (await api.ask(delete, token=token, id=made["id"])).data["deleteBudget"]["deletedId"] == made["id"]
    again = (await api.ask(delete, token=token, id=made["id"])).data["deleteBudget"]
    assert [each["code"] for each in again["errors"]] == ["BUDGET_NOT_FOUND"]
    assert (await api.create(name="web2"))["errors"] == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"limit": {"amountMicros": 0, "currency": "USD"}}, ["input", "limit"]),
        ({"exempt": [{"in": {"key": "a", "values": ["b"] * 101}}]}, ["input", "exempt"]),
        ({"exempt": [{"in": {"key": "a", "values": []}}]}, ["input", "exempt"]),
        ({"exempt": [{"in": {"key": "a", "values": ["b" * 256]}}]}, ["input", "exempt"]),
        ({"exempt": [{"exists": "a" * 64}]}, ["input", "exempt"]),
        ({"thresholds": [0]}, ["input", "thresholds"]),
        ({"thresholds": list(range(1, 12))}, ["input", "thresholds"]),
        ({"timezone": "Mars/Olympus"}, ["input", "timezone"]),
        ({"timezone": "../etc/passwd"}, ["input", "timezone"]),
        ({"scope": {"label": {"key": "", "value": "x"}}}, ["input", "scope", "label"]),
        ({"scope": {"project": False}}, ["input", "scope", "project"]),
        ({"name": " "}, ["input", "name"]),
        ({"period": "OTHER"}, ["input", "period"]),
        ({"action": "OTHER"}, ["input", "action"]),
    ],
)
async def test_a_wrong_budget_is_refused_with_the_path(api: Api, fields: dict[str, Any], path: list[str]):
    payload = (await api.ask(CREATE, token=await admin(api), input=wish(**fields))).data["createBudget"]
    assert payload["errors"] == [{"code": "INVALID_BUDGET", "path": path}]
    assert await api.world.value("SELECT count(*) FROM budget") == 0


async def test_another_projects_token_is_no_scope(api: Api):
    _, other = await api.world.new_token(project="other")
    scope = {"tokenId": ids.format_id(ids.TOKEN, other.token_id)}
    payload = (await api.ask(CREATE, token=await admin(api), input=wish(scope=scope))).data["createBudget"]
    assert payload["errors"] == [{"code": "TOKEN_NOT_FOUND", "path": ["input", "scope", "tokenId"]}]


async def test_a_dry_run_is_refused_by_the_budget_and_reserves_nothing(api: Api):
    token = await admin(api)
    await api.ask(CREATE, token=token, input=wish(limit={"amountMicros": 1, "currency": "USD"}))
    (error,) = (await api.create(validateOnly=True))["errors"]
    assert error["code"] == "BUDGET_EXCEEDED"
    await api.ask(CREATE, token=token, input=wish(name="b"))
    assert await api.world.value("SELECT count(*) FROM operation") == 0


async def test_a_budget_counts_machines_for_the_horizon_of_the_setting(api: Api):
    token = await admin(api)
    async with serving(
        api.server.runtime.database_url, api.server.simulator, budget_horizon=timedelta(minutes=30)
    ) as other:
        payload = await other.ask(CREATE, token=token, variables={"input": wish()})
        assert payload.data["createBudget"]["errors"] == []
    await api.create()

    assert await api.world.value("SELECT horizon_s FROM budget") == 1800
    (row,) = (await api.ask("{ budgets { nodes { reserved { amountMicros } } } }")).data["budgets"]["nodes"]
    price = await api.world.value("SELECT reserved_price_e5 FROM operation")
    assert row["reserved"]["amountMicros"] == price * 10 // 2
