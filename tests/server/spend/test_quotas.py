"""Quotas, and labels that move a machine into another scope: what counts, and what is refused."""

import asyncio
from typing import Any

import pytest

from schema import ids
from server.db.database import fetch_in
from server.db.tables import Quota
from server.enums import InstanceStatus, OperationKind, Role
from server.errors import BudgetExceeded
from server.instances.commands.create_rows import CreateBatcher
from server.instances.commands.lifecycle import Target
from server.instances.commands.update import UpdateDraft, update_instance
from server.spend.quotas import QuotaDraft, QuotaUsage, read_quota_usage, set_quota
from server.spend.refusals import QuotaExceeded
from tests.server.spend.test_budgets import LIFETIME, admin, budget, create_all
from tests.support.api import Api
from tests.support.lifecycle import ask
from tests.support.world import World

SET = """mutation ($input: SetQuotaInput!) { setQuota(input: $input) {
    quota { id maxInstances maxGpus maxPricePerHour { amountMicros } usedInstances usedGpus
      usedPricePerHour { amountMicros } scope { project label { key value } tokenId } }
    errors { code path } } }"""


async def quota(world: World, **fields: Any) -> Quota:
    async with world.database.write() as session:
        row = await set_quota(session, QuotaDraft(**fields), project_id=world.caller.project_id)
    assert row is not None
    return row


async def used(world: World, row: Quota) -> QuotaUsage:
    async with world.database.read() as session:
        return (await read_quota_usage(fetch_in(session), [row]))[row.id]


async def relabel(world: World, instance_id: Any, labels: dict[str, str]) -> None:
    await update_instance(world.database, Target(instance_id), UpdateDraft(labels=labels), by=world.caller)


async def test_of_32_at_once_exactly_those_are_accepted_that_the_quota_allows(world: World):
    row = await quota(world, max_instances=5)
    before = await world.counts()

    outcomes = await create_all([CreateBatcher(world.database) for _ in range(4)], world, 32)

    refused = [each for each in outcomes if isinstance(each, QuotaExceeded)]
    assert (len(outcomes) - len(refused), len(refused)) == (5, 27)
    assert {(each.quota_id, each.limit, each.used, each.allowed) for each in refused} == {
        (row.id, "maxInstances", 5, 5)
    }
    after = await world.counts()
    assert (after["instance"] - before["instance"], after["job"] - before["job"]) == (5, 5)


async def test_gpus_and_prices_count_until_the_machine_is_no_longer_paid_for(world: World):
    row = await quota(world, max_gpus=2)
    one = await world.create("one", gpu_count=2)
    with pytest.raises(QuotaExceeded, match="maxGpus"):
        await world.create("two")
    await world.work_until_status(one.instance.id, InstanceStatus.READY)
    price = (await world.instance(one.instance.id))["price_per_hour_e5"]
    assert await used(world, row) == QuotaUsage(1, 2, price)

    await world.work_until_over((await ask(world, OperationKind.STOP, one.instance.id)).operation.id)
    assert await used(world, row) == QuotaUsage(0, 0, 0)
    await world.create("two")
    await quota(world, max_price_e5=price + 1)
    with pytest.raises(QuotaExceeded, match="maxPricePerHour"):
        await ask(world, OperationKind.START, one.instance.id)
    assert (await world.instance(one.instance.id))["status"] == "EXITED"


async def test_only_quotas_of_the_scope_refuse_and_one_is_set_per_scope(world: World):
    other = await world.new_caller()
    await quota(world, max_instances=0, label=("team", "a"))
    await quota(world, max_instances=0, token_id=other.token_id)
    again = await asyncio.gather(*(quota(world, max_instances=number) for number in (3, 2)))
    assert len({row.id for row in again}) == 1

    await world.create("one", labels={"team": "b"})
    with pytest.raises(QuotaExceeded):
        await world.create("two", labels={"team": "a"})
    with pytest.raises(QuotaExceeded):
        await world.create("three", by=other)
    async with world.database.write() as session:
        assert await set_quota(session, QuotaDraft(label=("team", "a")), project_id=world.caller.project_id) is None
    await world.create("two", labels={"team": "a"})
    assert await world.value("SELECT count(*) FROM quota") == 2


async def test_a_machine_does_not_enter_a_scope_by_its_labels_that_has_too_little_left(world: World):
    made = await world.create("one", lifetime=LIFETIME, labels={"team": "b"})
    await world.work_until_status(made.instance.id, InstanceStatus.READY)
    price = (await world.instance(made.instance.id))["price_per_hour_e5"] * 10
    await budget(world, price // 2, name="a", label=("team", "a"))
    await budget(world, price * 2, name="c", label=("team", "c"))
    await quota(world, max_instances=0, label=("team", "q"))
    before = await world.counts()

    with pytest.raises(BudgetExceeded, match="budget a"):
        await relabel(world, made.instance.id, {"team": "a"})
    with pytest.raises(QuotaExceeded):
        await relabel(world, made.instance.id, {"team": "q"})
    assert (await world.counts())["operation"] == before["operation"]
    assert (await world.instance(made.instance.id))["labels"] == '{"team": "b"}'

    await relabel(world, made.instance.id, {"team": "c"})
    await relabel(world, made.instance.id, {"team": "c", "more": "1"})  # it counts there already
    await quota(world, max_instances=0)
    await relabel(world, made.instance.id, {"team": "c"})  # of the project's quota it adds nothing


async def test_a_stop_is_never_refused_though_nothing_is_left_and_nothing_is_paid(world: World):
    instance = await world.put(novita_id="m1", novita_status="toStart", price_per_hour_e5=100_000)
    await quota(world, max_instances=0)
    await budget(world, 1)

    accepted = await ask(world, OperationKind.STOP, instance.id)

    row = await world.operation(accepted.operation.id)
    assert (row["kind"], row["reserved_price_e5"]) == ("STOP", None)


async def test_quotas_are_set_listed_and_removed_through_the_api(api: Api):
    token = await admin(api)
    wish = {"scope": {"project": True}, "maxInstances": 1, "maxPricePerHour": {"amountMicros": 900_000_000}}
    made = (await api.ask(SET, token=token, input=wish)).data["setQuota"]["quota"]
    assert (made["maxInstances"], made["maxGpus"], made["usedInstances"]) == (1, None, 0)
    assert made["maxPricePerHour"] == {"amountMicros": 900_000_000}
    assert (await api.create(name="one"))["errors"] == []
    (error,) = (await api.create(name="two"))["errors"]
    assert (error["__typename"], error["code"]) == ("ProjectQuotaExceeded", "PROJECT_QUOTA_EXCEEDED")

    listed = (await api.ask("{ quotas { totalCount nodes { id usedInstances usedGpus } } }")).data["quotas"]
    assert listed == {"totalCount": 1, "nodes": [{"id": made["id"], "usedInstances": 1, "usedGpus": 1}]}
    assert (await api.ask("query ($id: ID!) { node(id: $id) { id } }", id=made["id"])).data["node"]["id"] == made["id"]
    removed = (await api.ask(SET, token=token, input={"scope": {"project": True}})).data["setQuota"]
    assert removed == {"quota": None, "errors": []}
    assert (await api.create(name="two"))["errors"] == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"maxInstances": -1}, ["input", "maxInstances"]),
        ({"maxGpus": 1_000_001}, ["input", "maxGpus"]),
        ({"maxPricePerHour": {"amountMicros": -10}}, ["input", "maxPricePerHour"]),
        ({"maxPricePerHour": {"amountMicros": 1, "currency": "EUR"}}, ["input", "maxPricePerHour", "currency"]),
        ({"scope": {"label": {"key": "", "value": ""}}, "maxGpus": 1}, ["input", "scope", "label"]),
        ({"scope": {"project": False}, "maxGpus": 1}, ["input", "scope", "project"]),
    ],
)
async def test_a_quota_out_of_range_is_refused(api: Api, fields: dict[str, Any], path: list[str]):
    wish = {"scope": {"project": True}, **fields}
    payload = (await api.ask(SET, token=await admin(api), input=wish)).data["setQuota"]
    assert payload == {"quota": None, "errors": [{"code": "INVALID_QUOTA", "path": path}]}
    assert await api.world.value("SELECT count(*) FROM quota") == 0


async def test_a_quota_of_a_foreign_token_is_refused(api: Api):
    _, stranger = await api.world.new_token("other", Role.OPERATOR)
    scope = {"tokenId": ids.format_id(ids.TOKEN, stranger.token_id)}
    payload = (await api.ask(SET, token=await admin(api), input={"scope": scope, "maxGpus": 1})).data["setQuota"]
    assert [each["code"] for each in payload["errors"]] == ["TOKEN_NOT_FOUND"]
