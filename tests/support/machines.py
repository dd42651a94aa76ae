"""Machines at the local provider that Pilotlight did not create, and changes to them."""

import asyncio

from server.novita.models import CreateInstance, Port
from server.simulator import lifecycle
from tests.support.waiting import until
from tests.support.world import World

SINGAPORE_ID = "as-sgp-2"


async def make_machine(world: World, name: str = "by-hand", *, spot: bool = False, http: bool = False) -> str:
    """The id of a new machine, on its way up."""
    products = await world.novita.products(cluster_id=SINGAPORE_ID, billing="spot" if spot else "onDemand")
    product = next(each for each in products if each.name == "RTX 4090 24GB")
    return await world.novita.create_instance(
        CreateInstance(
            name=name,
            product_id=product.id,
            gpu_count=1,
            rootfs_gb=60,
            image="nginx:1.27",
            image_auth_id=None,
            cluster_id=SINGAPORE_ID,
            billing_mode="spot" if spot else "onDemand",
            command="",
            entrypoint="",
            ports=(Port(80, "http"),) if http else (),
            envs=(),
        )
    )


def list_all(world: World) -> None:
    """The list lags no longer: it has every machine."""
    for machine in world.machines():
        if not machine.listed:
            machine.listed = True
            world.simulator.world.index.add(machine)


async def make_running(world: World, many: int, *, http: bool = True) -> list[str]:
    world.stock(SINGAPORE_ID, 1000)
    making = (make_machine(world, f"by-hand-{number}", http=http) for number in range(many))
    ids = list(await asyncio.gather(*making))
    await until(lambda: all(status_of(world, each) == "running" for each in ids))
    return ids


def status_of(world: World, novita_id: str) -> str:
    world.simulator.world.advance()
    return world.simulator.world.instance(novita_id).status


async def stop_outside(world: World, novita_id: str) -> None:
    """As an operator would in the provider's console."""
    lifecycle.stop(world.simulator.world, world.simulator.world.instance(novita_id))
    await until(lambda: status_of(world, novita_id) == "exited")


async def start_outside(world: World, novita_id: str) -> None:
    lifecycle.start(world.simulator.world, world.simulator.world.instance(novita_id))
    await until(lambda: status_of(world, novita_id) == "running")


async def remove_outside(world: World, novita_id: str) -> None:
    lifecycle.remove(world.simulator.world, world.simulator.world.instance(novita_id))
    await until(lambda: novita_id not in world.simulator.world.instances)


def reclaim(world: World, novita_id: str, *, notice: float) -> None:
    """`notice` is in simulated seconds."""
    lifecycle.reclaim(world.simulator.world, world.simulator.world.instance(novita_id), notice=notice)


async def missing_for(world: World, seconds: int) -> None:
    """As if every missing machine had been missed so much earlier for the first time."""
    await world.execute("UPDATE instance SET missing_since = missing_since - make_interval(secs => $1)", float(seconds))
