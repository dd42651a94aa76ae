"""Helpers of tests of waiting: creates that sleep, and stock that comes."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from server.instances.idempotency import Accepted
from server.market.wait_draft import WaitDraft
from server.novita.client import NovitaClient
from tests.server.market.polls import NAME, REGION, Market

CREATE = "POST /gpu/instance/create"
HOUR = timedelta(hours=1)
RESCUE = """
    UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL, due_at = now()
    WHERE status = 'RUNNING'
"""


async def create(market: Market, name: str, *, priority: int = 50, **fields: Any) -> Accepted:
    """A create that would wait."""
    request: dict[str, Any] = {
        "product_name": NAME,
        "regions": (REGION,),
        "billing": "SPOT",
        "on_no_capacity": WaitDraft(length=HOUR, priority=priority),
    }
    return await market.world.create(name, **{**request, **fields})


async def waiting(market: Market, name: str = "one", **fields: Any) -> Accepted:
    """A create that has found nothing, and sleeps."""
    accepted = await create(market, name, **fields)
    await work(market)
    assert await row(market, accepted) is not None
    return accepted


async def work(market: Market) -> None:
    """Run what is due; no time passes."""
    while await market.world.work_once():
        pass


async def stock(market: Market, free: int, **fields: Any) -> None:
    """So many machines are free from now on, and the tape knows it."""
    market.plan(free=free, **fields)
    await market.poll_segment()


async def row(market: Market, accepted: Accepted) -> asyncpg.Record | None:
    rows = await market.world.rows("SELECT * FROM capacity_wait WHERE operation_id = $1", accepted.operation.id)
    return rows[0] if rows else None


async def names_made(market: Market) -> list[str]:
    """The names of the instances that have a machine, in the order in which the provider made them."""
    machines = sorted(market.world.machines(), key=lambda machine: machine.created_at)
    rows = await market.world.rows("SELECT novita_id, name FROM instance WHERE novita_id IS NOT NULL")
    by_id = {each["novita_id"]: each["name"] for each in rows}
    return [by_id[machine.id] for machine in machines if machine.id in by_id]


class DyingAfter(NovitaClient):
    """Its process ends right after the provider has made a machine."""

    async def create_instance(self, *args: Any, **options: Any) -> str:
        await super().create_instance(*args, **options)
        raise asyncio.CancelledError


class DyingBefore(NovitaClient):
    """Its process ends right before the call."""

    async def create_instance(self, *args: Any, **options: Any) -> str:
        raise asyncio.CancelledError


async def die(market: Market, dying: type[NovitaClient]) -> None:
    """Work in a process that ends at a call, and let the next one have its jobs."""
    market.world.novita.__class__ = dying
    with pytest.raises(asyncio.CancelledError):
        await work(market)
    market.world.novita.__class__ = NovitaClient
    await market.world.execute(RESCUE)
