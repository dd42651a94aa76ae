"""A storm: many spot machines are reclaimed at once while workers die. `make recovery-storm MANY=200` is long."""

import asyncio
import os
import random
from collections import defaultdict
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from server.enums import Billing, InstanceStatus
from server.instances.drafts import Port
from server.instances.provider.reconcile import reconcile
from server.instances.recovery.spec import Recovery
from server.novita.client import NovitaClient
from server.simulator import lifecycle
from tests.chaos.recoveries import returns
from tests.server.market.conftest import market
from tests.server.market.polls import NAME, REGION, Market
from tests.server.market.waiters import stock
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import hasten, rescue
from tests.support.waiting import until
from tests.support.world import World

__all__ = ["market"]

MANY = int(os.environ.get("RECOVERY_STORM", "5"))
SEED = 2030
DEATHS = max(3, MANY // 10)
ALL = Recovery(allow_data_loss=True)
BEFORE = Recovery(allow_data_loss=True, replace_before_reclaim=True, drain=timedelta(seconds=1))  # every fifth
LONG = 1_000_000  # simulated seconds, almost three hours of ours
BILLED_AT_MOST = timedelta(seconds=30)  # after the drain


class DyingNow(NovitaClient):
    """Its process ends right after the provider has accepted a change."""

    async def create_instance(self, *args: Any, **options: Any) -> str:
        await super().create_instance(*args, **options)
        raise asyncio.CancelledError

    async def start_instance(self, *args: Any, **options: Any) -> None:
        await super().start_instance(*args, **options)
        raise asyncio.CancelledError

    async def migrate_instance(self, *args: Any, **options: Any) -> None:
        await super().migrate_instance(*args, **options)
        raise asyncio.CancelledError

    async def delete_instance(self, *args: Any, **options: Any) -> None:
        await super().delete_instance(*args, **options)
        raise asyncio.CancelledError


async def work(world: World, rng: random.Random, deaths: list[int]) -> None:
    """One run of a worker, which dies now and then in the middle of a call."""
    await world.hurry()
    if deaths[0] > 0 and rng.random() < 0.5:
        world.novita.__class__ = DyingNow
    try:
        await world.work_once()
    except asyncio.CancelledError:
        deaths[0] -= 1
        await rescue(world)
        await world.execute(PASS_GRACE)
    finally:
        world.novita.__class__ = NovitaClient


async def count(world: World, status: str) -> int:
    return await world.value("SELECT count(*) FROM instance WHERE status = $1", status)


# Calls of other jobs that were cut with the one that died made no machine: that is not waited for.
PASS_GRACE = "UPDATE attempt SET created_at = created_at - interval '2 minutes' WHERE status IN ('ASKING', 'UNKNOWN')"
# The pauses between attempts, and between the tries of a replacement, are over.
PASS_PAUSES = """
    UPDATE instance SET status_since = status_since - interval '1 hour',
        recovery_state = CASE WHEN recovery_state #> '{notice,last}' IS NULL THEN recovery_state
            ELSE jsonb_set(recovery_state, '{notice,last}', to_jsonb(now() - interval '1 hour')) END
    WHERE recovery_state IS NOT NULL
"""
TO_REPLACE = "SELECT novita_id FROM instance WHERE recovery @> '{\"replace_before_reclaim\": true}'"


async def serving_at_every_event(world: World) -> list[str]:
    """Instances whose events show a version out of order, a machine that serves two of them, or one that serves again
    after another."""
    problems: list[str] = []
    owners: dict[str, set[UUID]] = defaultdict(set)
    served: dict[UUID, list[str | None]] = defaultdict(list)
    for row in await world.rows("SELECT id FROM instance"):
        version = 0
        for event in await world.events(row["id"]):
            snapshot = event.data.get("instance")
            if snapshot is None:
                continue
            if snapshot["version"] < version:
                problems.append(f"{row['id']}: version {snapshot['version']} after {version}")
            version = snapshot["version"]
            if snapshot["novita_id"] is not None:
                owners[snapshot["novita_id"]].add(row["id"])
            served[row["id"]].append(snapshot["novita_id"])
    problems += returns([(str(id), each) for id, machines in served.items() for each in machines if each is not None])
    return problems + [f"{machine} served {len(ids)} instances" for machine, ids in owners.items() if len(ids) > 1]


async def billed_too_long(world: World) -> list[str]:
    """Machines that the provider has billed, by its own record, for more than that after they were to be removed."""
    bills = world.simulator.world.table("bill")
    wrong: list[str] = []
    for row in await world.rows("SELECT novita_id, removing_from FROM machine WHERE removing_from IS NOT NULL"):
        billed = cast(list[tuple[float, float, int]], bills[row["novita_id"]]["billed"])
        latest = (row["removing_from"] + BILLED_AT_MOST).timestamp()
        wrong += [f"{row['novita_id']}: {ended - latest} s too long" for _, ended, _ in billed if ended > latest]
    return wrong


@pytest.mark.timeout(1800)
async def test_every_instance_comes_back_once_and_no_machine_is_left(world: World):
    rng, deaths = random.Random(SEED), [DEATHS]
    world.stock("*", 10 * MANY)
    for number in range(MANY):
        recovery = BEFORE if number % 5 == 4 else ALL
        await world.create(f"storm-{number}", billing=Billing.SPOT, recovery=recovery, ports=(Port(8080, "http"),))

    async def all_ready() -> bool:
        await world.hurry()
        await world.work_once()
        return await count(world, InstanceStatus.READY) == MANY

    await until(all_ready, within=1200)
    simulated = world.simulator.world
    clusters = sorted({machine.cluster_id for machine in world.machines()})
    simulated.set_dialect(simulated.dialect.changed({"starts_reclaimed": False}))
    replaced = {row["novita_id"] for row in await world.rows(TO_REPLACE)}
    for machine in world.machines():
        lifecycle.reclaim(simulated, machine, notice=LONG if machine.id in replaced else 0)
    hasten(world)
    for cluster in clusters:
        world.stock(cluster, MANY // 2)  # half of them have to go elsewhere
    await reconcile(world.database, world.novita)
    assert await count(world, InstanceStatus.EXITED) == MANY - len(replaced)

    async def all_back() -> bool:
        await world.execute(PASS_PAUSES)
        await work(world, rng, deaths)
        left = await world.value("SELECT count(*) FROM machine WHERE removing_from IS NOT NULL AND ended_at IS NULL")
        late = await world.value("SELECT count(*) FROM instance WHERE novita_id = ANY($1)", list(replaced))
        return (left, late) == (0, 0) and await count(world, InstanceStatus.READY) == MANY

    await until(all_back, within=1200)
    hasten(world)
    await reconcile(world.database, world.novita)

    assert deaths[0] < DEATHS
    assert await serving_at_every_event(world) == []
    assert await billed_too_long(world) == []
    assert await machines_unaccounted(world) == []
    serving = {row["novita_id"] for row in await world.rows("SELECT novita_id FROM instance")}
    assert {machine.id for machine in world.machines()} == serving
    assert len(serving) == MANY
    assert await world.value("SELECT count(*) FROM machine WHERE ended_at IS NULL") == MANY
    ids = [row["id"] for row in await world.rows("SELECT id FROM instance")]
    types = [each for id in ids for each in await world.event_types(id)]
    assert types.count("instance.orphan_found") == 0


READY_OR_WAITING = """
    SELECT count(*) FROM instance
    WHERE status = 'READY' OR status = 'STARTING' AND status_reason = 'WAITING_FOR_CAPACITY'
      AND EXISTS (SELECT FROM capacity_wait WHERE instance_id = instance.id)
"""


@pytest.mark.timeout(1800)
async def test_all_wait_while_there_is_no_stock_and_come_back_with_it(market: Market):
    world, rng, deaths = market.world, random.Random(SEED), [DEATHS]
    await market.poll()
    market.plan(free=MANY)
    await market.poll_segment()
    for number in range(MANY):
        await world.create(f"storm-{number}", product_name=NAME, regions=(REGION,), billing=Billing.SPOT, recovery=ALL)

    async def all_ready() -> bool:
        await work(world, rng, deaths)
        return await count(world, InstanceStatus.READY) == MANY

    await until(all_ready, within=1200)
    simulated = world.simulator.world
    simulated.set_dialect(simulated.dialect.changed({"starts_reclaimed": False}))
    for machine in world.machines():
        lifecycle.reclaim(simulated, machine, notice=0)
    hasten(world)
    await stock(market, 0)
    await world.configure()  # without a catalogue that is older than the stock
    await reconcile(world.database, world.novita)
    assert await count(world, InstanceStatus.EXITED) == MANY
    deaths[0] = DEATHS

    async def all_wait() -> bool:
        await work(world, rng, deaths)
        return await world.value("SELECT count(*) FROM capacity_wait WHERE job_id IS NULL") == MANY

    await until(all_wait, within=1200)
    deaths[0] += DEATHS
    for _ in range(MANY):
        assert await world.value(READY_OR_WAITING) == MANY
        ready = await count(world, InstanceStatus.READY)
        await stock(market, 1)

        async def one_more(before: int = ready) -> bool:
            await work(world, rng, deaths)
            return await count(world, InstanceStatus.READY) > before and await world.value(READY_OR_WAITING) == MANY

        await until(one_more, within=300)

    async def none_leaves() -> bool:
        await work(world, rng, deaths)
        return not await world.value(
            "SELECT count(*) FROM machine WHERE removing_from IS NOT NULL AND ended_at IS NULL"
        )

    await until(none_leaves, within=300)
    hasten(world)
    assert deaths[0] < 2 * DEATHS
    assert await serving_at_every_event(world) == []
    assert await billed_too_long(world) == []
    assert await machines_unaccounted(world) == []
    serving = {row["novita_id"] for row in await world.rows("SELECT novita_id FROM instance")}
    assert {machine.id for machine in world.machines()} == serving
    assert len(serving) == MANY
