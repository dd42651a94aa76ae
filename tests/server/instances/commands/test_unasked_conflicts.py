"""Creates of a project whose last one collided with nothing: what they collide with is found while they are written."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from server.clock import new_id
from server.enums import ProviderObjectKind
from server.errors import Invalid, KeyReused, Refused
from server.instances.limits.policy import Policy, set_policy
from tests.server.spend.test_budgets import budget
from tests.support.world import World

TEMPLATE = "107672"


async def test_the_first_create_asks_and_the_next_ones_do_not(world: World):
    lookup = world.creates.lookup
    assert lookup.expects_none(world.caller.project_id) is False
    await world.create("first")
    assert lookup.expects_none(world.caller.project_id) is True

    await asyncio.gather(*(world.create(f"next-{number}", idempotency_key=f"{number}") for number in range(20)))

    counts = await world.counts()
    assert (counts["instance"], counts["operation"], counts["job"], counts["event"]) == (21, 21, 21, 42)
    assert counts["idempotency_key"] == 20
    assert lookup.expects_none(world.caller.project_id) is True


async def require_lifetimes(world: World) -> None:
    async with world.database.write() as session:
        await set_policy(session, world.caller.project_id, Policy(required=True))


async def use_up_the_budget(world: World) -> None:
    await budget(world, 1)


async def take_the_template(world: World) -> None:
    other = await world.new_caller(project="other")
    await world.execute(
        "INSERT INTO provider_object (id, kind, novita_id, name, project_id) VALUES ($1, $2, $3, 'x', $4)",
        new_id(),
        ProviderObjectKind.TEMPLATE.value,
        TEMPLATE,
        other.project_id,
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (require_lifetimes, "LIFETIME_REQUIRED"),
        (use_up_the_budget, "BUDGET_EXCEEDED"),
        (take_the_template, "TEMPLATE_NOT_FOUND"),
    ],
)
async def test_a_rule_made_since_then_refuses_the_next_create(
    world: World, change: Callable[[World], Awaitable[None]], code: str
):
    await world.create("first", template_id=TEMPLATE)
    await change(world)
    before = await world.counts()

    for key in (None, "key"):
        with pytest.raises(Refused) as found:
            await world.create("second", template_id=TEMPLATE, idempotency_key=key)
        assert _codes(found.value) == [code]

    assert await world.counts() == before


async def test_a_default_lifetime_set_since_then_is_given_to_the_next_create(world: World):
    await world.create("first")
    async with world.database.write() as session:
        await set_policy(session, world.caller.project_id, Policy(default_max_duration=timedelta(hours=2)))

    accepted = await world.create("second")

    assert accepted.instance.lifetime == {"max_duration": "PT2H", "on_end": "STOP", "warn_before": "PT10M"}
    assert world.creates.lookup.expects_none(world.caller.project_id) is False


async def test_a_taken_name_is_refused_and_reserves_no_key_beside_creates_that_are_accepted(world: World):
    await world.create("taken")
    outcomes: list[Any] = await asyncio.gather(
        *(world.create("taken", idempotency_key=f"taken-{number}") for number in range(8)),
        *(world.create(f"free-{number}", idempotency_key=f"free-{number}") for number in range(8)),
        return_exceptions=True,
    )

    assert [_codes(each) for each in outcomes[:8]] == [["INSTANCE_NAME_TAKEN"]] * 8
    assert [each.instance.name for each in outcomes[8:]] == [f"free-{number}" for number in range(8)]
    assert [key for (key,) in await world.rows("SELECT key FROM idempotency_key ORDER BY key")] == [
        f"free-{number}" for number in range(8)
    ]


async def test_a_key_used_before_returns_the_same_instance_or_is_refused_for_another_request(world: World):
    await world.create("first")
    accepted = await world.create("keyed", idempotency_key="key")
    before = await world.counts()

    replayed = await world.create("keyed", idempotency_key="key")
    with pytest.raises(KeyReused):
        await world.create("another", idempotency_key="key")

    assert (replayed.instance.id, replayed.replayed) == (accepted.instance.id, True)
    assert await world.counts() == before


def _codes(error: Refused) -> list[str]:
    return [problem.code for problem in error.problems] if isinstance(error, Invalid) else [error.code]
