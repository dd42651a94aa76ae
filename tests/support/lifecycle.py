"""Instances with a machine in a given status, and helpers that run operations on them."""

import asyncio
from dataclasses import asdict
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import text

from server.clock import now
from server.db.tables import Instance
from server.enums import InstanceStatus, OperationKind
from server.instances.commands.cancel import Cancelled, cancel_operation
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.drafts import Port
from server.instances.idempotency import Accepted
from server.instances.provider.states import observed_columns
from server.novita import models as wire
from server.novita.client import NovitaClient
from server.simulator.models import Instance as Machine
from tests.support.world import RTX, SINGAPORE, World

START = "POST /gpu/instance/start"
STOP = "POST /gpu/instance/stop"
RESTART = "POST /gpu/instance/restart"
MIGRATE = "POST /gpu/instance/migrate"
EDIT = "POST /gpu/instance/edit"
UPGRADE = "POST /gpu/instance/upgrade"
SAVE_IMAGE = "POST /job/save/image"
CHANGES = (START, STOP, RESTART, MIGRATE, EDIT, "POST /gpu/instance/delete", UPGRADE, SAVE_IMAGE)

# The provider call of each operation.
ROUTES = {
    OperationKind.START: START,
    OperationKind.STOP: STOP,
    OperationKind.RESTART: RESTART,
    OperationKind.MIGRATE: MIGRATE,
    OperationKind.UPDATE: EDIT,
}


async def ready(world: World, name: str = "one", ports: tuple[Port, ...] = ()) -> UUID:
    """A READY instance whose machine runs, made without a create: there are no events and no provider calls yet."""
    return await _put(world, InstanceStatus.READY, name, ports)


async def exited(world: World, name: str = "one", ports: tuple[Port, ...] = ()) -> UUID:
    """An EXITED instance whose machine is stopped."""
    return await _put(world, InstanceStatus.EXITED, name, ports)


async def _put(world: World, status: InstanceStatus, name: str, ports: tuple[Port, ...]) -> UUID:
    catalog = world.simulator.world.catalog
    product_id, cluster_id = next(each for each in catalog.total if catalog.products[each[0]].name == RTX)
    novita_id = await world.novita.create_instance(
        wire.CreateInstance(
            name=name,
            product_id=product_id,
            cluster_id=cluster_id,
            billing_mode="onDemand",
            image="nginx",
            rootfs_gb=60,
            ports=tuple(wire.Port(port.port, port.type) for port in ports),
        )
    )
    hasten(world)
    if status is InstanceStatus.EXITED:
        await world.novita.stop_instance(novita_id)
        hasten(world)
    remote = await world.novita.instance(novita_id)
    moment = now()
    row = await world.put(
        status,
        name=name,
        novita_id=novita_id,
        region=SINGAPORE,
        ports=[asdict(port) for port in ports],
        running_at=moment,
        ready_at=moment,
        **observed_columns(remote),
    )
    await forget(world)
    return row.id


def hasten(world: World) -> None:
    """What the provider's machines are on their way to, they are now."""
    simulated = world.simulator.world
    simulated.clock.set_now(simulated.clock.now() + 60)
    simulated.advance()


async def fit_for(world: World, kind: OperationKind, name: str = "one") -> UUID:
    """An instance whose status allows that operation."""
    return await (exited if kind is OperationKind.START else ready)(world, name)


async def forget(world: World) -> None:
    """Deletes the events and provider calls so far."""
    await world.execute("DELETE FROM outbox")
    world.simulator.world.calls.clear()


async def ask(world: World, kind: OperationKind, instance_id: UUID, key: str | None = None) -> Accepted:
    if kind is OperationKind.UPDATE:
        draft = UpdateDraft(ports=(Port(8080, "http"),), idempotency_key=key)
        return await update_instance(world.database, Target(instance_id), draft, by=world.caller)
    return await accept(world.database, kind, Target(instance_id), by=world.caller, key=key)


async def done(world: World, kind: OperationKind, instance_id: UUID) -> asyncpg.Record:
    """Requests the operation and works until it has ended."""
    accepted = await ask(world, kind, instance_id)
    return await world.work_until_over(accepted.operation.id)


async def cancel(world: World, operation_id: UUID, **options: Any) -> Cancelled:
    return await cancel_operation(world.database, operation_id, by=world.caller, **options)


async def status_of(world: World, instance_id: UUID) -> str:
    return str((await world.instance(instance_id))["status"])


async def transitions_of(world: World, instance_id: UUID) -> list[str]:
    """The types of all events except updates without a transition."""
    return [each for each in await world.event_types(instance_id) if each not in ("instance.changed", "health.checked")]


def machine(world: World) -> Machine:
    (found,) = world.machines()
    return found


def changes(world: World) -> dict[str, int]:
    """The calls that change something at the provider, and how often they came."""
    return {route: world.calls(route) for route in CHANGES if world.calls(route)}


class Dying(NovitaClient):
    """Its process ends right after the provider has accepted a change."""

    async def start_instance(self, *args: Any, **options: Any) -> None:
        await super().start_instance(*args, **options)
        raise asyncio.CancelledError

    async def stop_instance(self, *args: Any, **options: Any) -> None:
        await super().stop_instance(*args, **options)
        raise asyncio.CancelledError

    async def restart_instance(self, *args: Any, **options: Any) -> None:
        await super().restart_instance(*args, **options)
        raise asyncio.CancelledError

    async def migrate_instance(self, *args: Any, **options: Any) -> None:
        await super().migrate_instance(*args, **options)
        raise asyncio.CancelledError

    async def edit_instance(self, *args: Any, **options: Any) -> None:
        await super().edit_instance(*args, **options)
        raise asyncio.CancelledError

    async def upgrade_instance(self, *args: Any, **options: Any) -> None:
        await super().upgrade_instance(*args, **options)
        raise asyncio.CancelledError

    async def save_image(self, *args: Any, **options: Any) -> str:
        await super().save_image(*args, **options)
        raise asyncio.CancelledError


async def rescue(world: World) -> None:
    """What a dead worker held is free again."""
    await world.execute("UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL")


async def row_of(world: World, instance_id: UUID) -> Instance:
    async with world.database.read() as session:
        return await session.get_one(Instance, instance_id)


async def age(world: World, operation_id: UUID, seconds: int) -> None:
    """As if it had been accepted, and the provider asked, so much earlier."""
    async with world.database.write() as session:
        await session.execute(
            text(
                "UPDATE operation SET created_at = created_at - make_interval(secs => :seconds),"
                " asked_at = asked_at - make_interval(secs => :seconds) WHERE id = :id"
            ),
            {"seconds": seconds, "id": operation_id},
        )
