"""Instances with a machine and a lifetime, and the clock moved by moving their times."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from server.enums import InstanceStatus
from server.instances.limits.spec import Lifetime
from tests.support.aging import AGE
from tests.support.world import World

# The times that limits are counted from; moved into the past, the limits come nearer.
Ready = Callable[..., Awaitable[UUID]]


@pytest.fixture
def ready(world: World) -> Ready:
    """A READY instance with these limits."""

    async def make(name: str = "one", **limits: Any) -> UUID:
        accepted = await world.create(name, lifetime=Lifetime(**limits))
        await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
        return accepted.instance.id

    return make


async def age(world: World, instance_id: UUID, by: timedelta) -> None:
    """As if everything had happened that much earlier."""
    await world.execute(AGE, instance_id, by)


async def run_step(world: World, instance_id: UUID) -> None:
    """Let the instance's job run once, now."""
    now_due = "UPDATE job SET run_at = now(), due_at = now() WHERE unique_key = $1"
    await world.execute(now_due, f"lifetime {instance_id}")
    await world.work_once()


async def last_operation(world: World, instance_id: UUID) -> tuple[str, str | None, str | None]:
    newest = "SELECT kind, reason, requested_by::text FROM operation WHERE instance_id = $1 ORDER BY created_at DESC"
    return tuple((await world.rows(newest, instance_id))[0])


async def jobs(world: World, instance_id: UUID) -> int:
    return await world.value("SELECT count(*) FROM job WHERE unique_key = $1", f"lifetime {instance_id}")


async def lifetime_events(world: World, instance_id: UUID) -> list[tuple[str, dict[str, str]]]:
    events = await world.events(instance_id)
    return [(each.type, each.data["values"]) for each in events if each.type.startswith("lifetime.")]
