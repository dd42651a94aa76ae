"""Limits of tokens for programs: what they may create, start and extend."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from server.auth.caller import Caller
from server.auth.token_limits import TokenLimits
from server.enums import InstanceStatus, OperationKind
from server.errors import LifetimeAbovePolicy
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.limits.spec import Lifetime, LifetimeChange
from server.lifetimes.extend import Extension, extend_lifetime
from server.spend.refusals import TokenLimitExceeded
from tests.server.spend.test_budgets import admin
from tests.support.api import Api
from tests.support.lifecycle import ask
from tests.support.world import World

HOUR = timedelta(hours=1)
CREATE = """mutation ($input: CreateTokenInput!) { createToken(input: $input) {
    secret token { id limits { maxDuration productNames regions
      budget { name limit { amountMicros } period action scope { tokenId } }
      quota { maxInstances maxPricePerHour { amountMicros } scope { tokenId } } } }
    errors { code path } } }"""


def limited(world: World, **limits: Any) -> Caller:
    return replace(world.caller, limits=TokenLimits(**limits))


async def make(api: Api, **limits: Any) -> dict[str, Any]:
    wish = {"name": "agent", "limits": limits}
    return (await api.ask(CREATE, token=await admin(api), input=wish)).data["createToken"]


async def test_a_limited_token_is_created_with_its_budget_and_quota(api: Api):
    made = await make(
        api,
        budget={"amountMicros": 5_000_000},
        maxInstances=1,
        maxPricePerHour={"amountMicros": 3_000_000},
        maxDuration=3600,
        productNames=["rtx 4090 24gb"],
        regions=["US-CA-06"],
    )
    assert made["errors"] == []
    id, limits = made["token"]["id"], made["token"]["limits"]
    assert (limits["maxDuration"], limits["productNames"], limits["regions"]) == (3600, ["rtx 4090 24gb"], ["US-CA-06"])
    assert limits["budget"] == {
        "name": f"Token {id}",
        "limit": {"amountMicros": 5_000_000},
        "period": "TOTAL",
        "action": "BLOCK",
        "scope": {"tokenId": id},
    }
    assert limits["quota"] == {
        "maxInstances": 1,
        "maxPricePerHour": {"amountMicros": 3_000_000},
        "scope": {"tokenId": id},
    }

    agent = replace(api, token=made["secret"])
    seen = (await agent.ask("{ viewer { token { limits { maxDuration } } } }")).data["viewer"]["token"]["limits"]
    assert seen == {"maxDuration": 3600}
    first = await agent.create(name="one")
    assert first["errors"] == []
    row = await api.world.one("SELECT regions, lifetime ->> 'max_duration' AS longest FROM instance")
    assert tuple(row) == ('["US-CA-06"]', "PT1H")
    (error,) = (await agent.create(name="two"))["errors"]
    assert error["code"] == "PROJECT_QUOTA_EXCEEDED"
    (error,) = (await agent.create(name="two", productName="A100 SXM4"))["errors"]
    assert (error["__typename"], error["code"], error["path"]) == (
        "TokenLimitExceeded",
        "TOKEN_LIMIT_EXCEEDED",
        ["input", "productName"],
    )
    assert (await api.create(name="mine", productName="RTX 4090 24GB"))["errors"] == []  # another token has no limits


async def test_a_budget_of_the_token_refuses_what_it_can_not_pay(api: Api):
    made = await make(api, budget={"amountMicros": 1})
    assert made["token"]["limits"]["quota"] is None
    (error,) = (await replace(api, token=made["secret"]).create())["errors"]
    assert error["code"] == "BUDGET_EXCEEDED"
    assert await api.world.value("SELECT count(*) FROM instance") == 0


@pytest.mark.parametrize(
    ("limits", "path"),
    [
        ({"budget": {"amountMicros": 0}}, ["budget"]),
        ({"budget": {"amountMicros": 1, "currency": "EUR"}}, ["budget", "currency"]),
        ({"maxInstances": 0}, ["maxInstances"]),
        ({"maxPricePerHour": {"amountMicros": 0}}, ["maxPricePerHour"]),
        ({"maxDuration": 299}, ["maxDuration"]),
        ({"productNames": []}, ["productNames"]),
        ({"productNames": [" "]}, ["productNames"]),
        ({"regions": ["r" * 256]}, ["regions"]),
        ({"regions": ["r"] * 101}, ["regions"]),
    ],
)
async def test_limits_out_of_range_are_refused_and_no_token_is_made(api: Api, limits: dict[str, Any], path: list[str]):
    secret = await admin(api)
    before = await api.world.value("SELECT count(*) FROM token")
    wish = {"name": "agent", "limits": limits}
    payload = (await api.ask(CREATE, token=secret, input=wish)).data["createToken"]
    assert payload["errors"] == [{"code": "INVALID_TOKEN_LIMITS", "path": ["input", "limits", *path]}]
    assert await api.world.value("SELECT count(*) FROM token") == before


async def test_an_admin_has_no_limits(api: Api):
    wish = {"name": "agent", "role": "ADMIN", "limits": {"maxInstances": 1}}
    payload = (await api.ask(CREATE, token=await admin(api), input=wish)).data["createToken"]
    assert payload["errors"] == [{"code": "INVALID_TOKEN_LIMITS", "path": ["input", "limits"]}]
    assert (payload["token"], await api.world.value("SELECT count(*) FROM quota")) == (None, 0)


async def test_regions_of_the_token_bound_those_of_the_request(world: World):
    by = limited(world, regions=("us-ca-06", "AS-SGP-02"))
    await world.create("any", by=by)
    await world.create("one", by=by, region="US-CA-06")
    await world.create("any too", by=by, regions=("ANY",))
    rows = await world.rows("SELECT regions FROM instance ORDER BY created_at")
    both = '["US-CA-06", "AS-SGP-02"]'
    assert [row[0] for row in rows] == ['["AS-SGP-02"]', both, both]  # the first: of the server's own regions

    for fields in ({"region": "EU-GB-01"}, {"regions": ("US-CA-06", "EU-GB-01")}):
        with pytest.raises(TokenLimitExceeded) as refused:
            await world.create("other", by=by, **fields)
        assert refused.value.limit == "regions"
    with pytest.raises(TokenLimitExceeded):
        await world.create("nowhere", by=limited(world, regions=("MOON-01",)))
    assert await world.value("SELECT count(*) FROM instance") == 3


async def test_longest_run_of_the_token_is_default_and_bound_of_start_update_and_extension(world: World):
    by = limited(world, max_duration=HOUR)
    with pytest.raises(LifetimeAbovePolicy):
        await world.create("long", by=by, lifetime=Lifetime(max_duration=2 * HOUR))
    mine = await world.create("mine", by=by)
    await world.work_until_status(mine.instance.id, InstanceStatus.READY)
    with pytest.raises(LifetimeAbovePolicy):
        await extend_lifetime(world.database, Target(mine.instance.id), Extension(by=timedelta(minutes=1)), by=by)
    change = UpdateDraft(lifetime=LifetimeChange(None))
    with pytest.raises(LifetimeAbovePolicy):
        await update_instance(world.database, Target(mine.instance.id), change, by=by)
    stored = await world.value("SELECT lifetime ->> 'max_duration' FROM instance WHERE id = $1", mine.instance.id)
    assert stored == "PT1H"

    theirs = await world.create("theirs")
    await world.work_until_status(theirs.instance.id, InstanceStatus.READY)
    await world.work_until_over((await ask(world, OperationKind.STOP, theirs.instance.id)).operation.id)
    started = await accept(world.database, OperationKind.START, Target(theirs.instance.id), by=by)
    assert started.instance.lifetime is not None
    assert started.instance.lifetime["max_duration"] == "PT1H"


async def test_an_instance_of_another_product_or_region_is_not_started(world: World):
    made = await world.create("one")
    await world.work_until_status(made.instance.id, InstanceStatus.READY)
    await world.work_until_over((await ask(world, OperationKind.STOP, made.instance.id)).operation.id)
    target = Target(made.instance.id)
    for limits in ({"product_names": ("A100",)}, {"regions": ("MOON-01",)}):
        with pytest.raises(TokenLimitExceeded):
            await accept(world.database, OperationKind.START, target, by=limited(world, **limits))
    assert (await world.instance(made.instance.id))["status"] == "EXITED"
    region = (await world.instance(made.instance.id))["region"]
    by = limited(world, product_names=(made.instance.product_name,), regions=(region.lower(),))
    await accept(world.database, OperationKind.START, target, by=by)
