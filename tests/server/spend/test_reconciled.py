"""After a reconcile the burn rate is what the provider charges, also for rows that could not be written at first."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from server.db.database import Database
from server.db.timeouts import Timeouts
from server.enums import InstanceStatus, OperationKind
from server.instances import transitions
from server.instances.provider.reconcile import reconcile
from server.novita.client import NovitaClient
from server.simulator import lifecycle
from tests.server.recovery.test_machines import replaced
from tests.server.spend.test_ends import ready, until_called
from tests.server.spend.test_ledger import change
from tests.support.lifecycle import ask, hasten
from tests.support.world import World

S = InstanceStatus
BURNS = "SELECT machine, price_e5 FROM cost_entry WHERE ended_at IS NULL ORDER BY machine"
START = "POST /gpu/instance/start"
# The first writes of an instance fail, as if their connections had been closed.
FAIL = """
    CREATE SEQUENCE failures;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('failures') <= {} THEN
            RAISE EXCEPTION 'terminating connection' USING ERRCODE = '57P01';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fail BEFORE UPDATE ON instance FOR EACH ROW EXECUTE FUNCTION fail();
"""


async def is_as_charged(world: World) -> bool:
    meter = world.simulator.world.meter
    charged = [(each.id, meter.price_now(each)) for each in world.machines() if meter.price_now(each)]
    return sorted(charged) == [(row["machine"], row["price_e5"]) for row in await world.rows(BURNS)]


def ends(world: World, machine: str) -> None:
    """By itself, which reconcile finds out."""
    lifecycle.exit_by_itself(world.simulator.world, world.simulator.world.instance(machine), code=0)


def then(world: World, happens: Callable[[], Awaitable[object]]) -> None:
    """It happens when the provider's list was read, and nothing of it is written yet."""

    class Read(NovitaClient):
        async def all_instances(self, *args: Any, **options: Any) -> Any:
            remotes = await super().all_instances(*args, **options)
            await happens()
            return remotes

    world.novita.__class__ = Read


async def test_row_that_was_changed_after_the_list_was_asked_for(world: World):
    one, machine = await ready(world)
    ends(world, machine)
    then(world, lambda: change(world, one, labels={"team": "a"}))

    report = await reconcile(world.database, world.novita)

    assert (await world.instance(one))["status"] == S.EXITED
    assert await is_as_charged(world)
    assert report.again == 1


@asynccontextmanager
async def locked(url: str, instance_id: UUID, *, until: asyncio.Event) -> AsyncGenerator[None]:
    database = Database(url, timeouts=Timeouts(idle=timedelta(minutes=5)))
    is_locked = asyncio.Event()

    async def hold() -> None:
        async with database.write() as session:
            await transitions.lock(session, instance_id)
            is_locked.set()
            await until.wait()

    holding = asyncio.create_task(hold())
    await is_locked.wait()
    try:
        yield
    finally:
        until.set()
        await holding
        await database.close()


async def test_row_that_was_locked_for_a_moment(world: World, database_url: str):
    one, machine = await ready(world)
    ends(world, machine)
    is_looked_at = asyncio.Event()

    class Looks(NovitaClient):
        async def instance(self, *args: Any, **options: Any) -> Any:
            is_looked_at.set()
            return await super().instance(*args, **options)

    world.novita.__class__ = Looks
    async with locked(database_url, one, until=is_looked_at):
        await reconcile(world.database, world.novita)

    assert (await world.instance(one))["status"] == S.EXITED
    assert await is_as_charged(world)


async def test_machines_that_ended_in_the_same_second_while_the_database_was_restarted(world: World):
    machines: list[str] = []
    for name in ("one", "two", "three"):
        one = (await world.create(name)).instance.id
        await world.work_until_status(one, S.READY)
        machines.append((await world.instance(one))["novita_id"])
    for machine in machines:
        ends(world, machine)
    await world.execute(FAIL.format(len(machines)))
    try:
        await reconcile(world.database, world.novita)
    finally:
        await world.execute("DROP FUNCTION fail CASCADE; DROP SEQUENCE failures")

    assert await is_as_charged(world)
    assert await world.value("SELECT count(*) FROM instance WHERE status = 'EXITED'") == len(machines)


async def test_start_of_which_an_older_look_was_written_after_the_list(world: World):
    one = await stopped(world)
    await ask(world, OperationKind.START, one)
    await until_called(world, START)
    hasten(world)
    then(world, lambda: change(world, one, novita_status="toStart"))

    await reconcile(world.database, world.novita)

    assert (await world.instance(one))["novita_status"] == "running"
    assert await is_as_charged(world)


async def stopped(world: World) -> UUID:
    one, _ = await ready(world)
    await ask(world, OperationKind.STOP, one)
    await world.work_until_status(one, S.EXITED)
    return one


@pytest.mark.parametrize("has_ended", [False, True])
async def test_machine_that_does_not_serve_of_an_instance_that_was_locked_for_a_moment(
    world: World, database_url: str, has_ended: bool
):
    one, old, _ = await replaced(world)
    if has_ended:
        ends(world, old)
    else:
        await world.execute("DELETE FROM cost_entry WHERE machine = $1", old)
    is_tried_again, looks = asyncio.Event(), 0

    class Unlisted(NovitaClient):
        async def all_instances(self, *args: Any, **options: Any) -> Any:
            return [each for each in await super().all_instances(*args, **options) if each.id != old]

        async def instance(self, *args: Any, **options: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks > 1:
                is_tried_again.set()
            return await super().instance(*args, **options)

    world.novita.__class__ = Unlisted
    async with locked(database_url, one, until=is_tried_again):
        await reconcile(world.database, world.novita)

    assert await is_as_charged(world)
