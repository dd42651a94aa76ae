"""The entry of a removed machine ends when its removal was accepted, also if that could not be written at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import pytest
from sqlalchemy import text

from server.clock import now
from server.db.database import Database
from server.db.outages import DATABASE_ERRORS
from server.db.persistent_writes import PersistentWrites
from server.db.timeouts import Timeouts
from server.enums import InstanceStatus, OperationKind
from server.jobs.registry import all_handlers
from server.novita.client import NovitaClient
from server.queue.runner import Backoff
from server.queue.worker import Worker
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from tests.server.recovery.test_machines import replaced
from tests.server.spend.test_ends import (
    AGO,
    DELETE,
    LOOK,
    REMOVED,
    began_earlier,
    entry_of,
    only_entry,
    ready,
    stopped_a_minute_ago,
    until_called,
)
from tests.support.fault_proxy import FaultProxy
from tests.support.lifecycle import STOP, ask, hasten, rescue
from tests.support.waiting import until
from tests.support.world import World

S = InstanceStatus
NOTHING = "SELECT count(*) = 0 FROM {} WHERE {} IS NOT NULL"
# As if the call had waited for that long after its intent was written.
WAITED = """
    UPDATE operation SET before = jsonb_set(before, '{sent_at}', to_jsonb(now() - interval '1 minute'))
    WHERE before ->> 'sent_at' IS NOT NULL
"""
MACHINE_WAITED = "UPDATE machine SET removal_sent_at = removal_sent_at - interval '1 minute'"
SENT_AT = "SELECT CAST(before ->> 'sent_at' AS timestamptz) FROM operation WHERE id = $1"


@asynccontextmanager
async def behind_a_proxy(url: str) -> AsyncGenerator[tuple[Database, FaultProxy]]:
    """A database whose connections can be cut."""
    parts = urlsplit(url)
    async with FaultProxy(parts.port or 0) as proxy:
        login = parts.netloc.rpartition("@")[0]
        netloc = f"127.0.0.1:{proxy.port}"
        cut = Database(
            urlunsplit(parts._replace(netloc=f"{login}@{netloc}" if login else netloc)),
            timeouts=Timeouts(statement=timedelta(seconds=5)),
        )
        try:
            yield cut, proxy
        finally:
            await cut.close()


async def run_through(world: World, database: Database, proxy: FaultProxy) -> datetime:
    """One run, during which the database goes away for a second right after the provider has accepted the removal;
    since when. The run's result can't be written on the old connection, so the job goes to another worker."""
    accepted: list[datetime] = []

    class Outage(NovitaClient):
        async def delete_instance(self, *args: Any, **options: Any) -> None:
            await super().delete_instance(*args, **options)
            accepted.append(now())
            for waited in (WAITED, MACHINE_WAITED):
                await world.execute(waited)
            proxy.cut()
            asyncio.get_running_loop().call_later(1.0, proxy.mend)

    world.novita.__class__ = Outage
    services = world.services_with(world.novita)
    object.__setattr__(services, "database", database)
    services.__post_init__()
    backoff = Backoff(base=timedelta(milliseconds=10))
    with suppress(*DATABASE_ERRORS):
        await Worker(database, world.notifier, all_handlers(services), backoff=backoff).work_once()
    world.novita.__class__ = NovitaClient
    await rescue(world)
    return accepted[0]


async def test_delete_whose_acceptance_could_not_be_written(world: World, database_url: str):
    one, _ = await ready(world)
    deletion = await world.delete(one)

    async with behind_a_proxy(database_url) as (database, proxy):
        accepted = await run_through(world, database, proxy)
    await world.work_until_over(deletion)

    entry = await only_entry(world)
    assert abs(entry["ended_at"] - accepted) < timedelta(seconds=1)  # before the outage, which took a second
    assert world.calls(DELETE) == 1


async def test_removal_of_a_second_machine_whose_acceptance_could_not_be_written(world: World, database_url: str):
    _, old, _ = await replaced(world)
    await began_earlier(world)

    async with behind_a_proxy(database_url) as (database, proxy):
        accepted = await run_through(world, database, proxy)
    hasten(world)

    async def is_removed() -> bool:
        return await world.value(REMOVED)

    await world.work_until(is_removed)

    assert abs((await entry_of(world, old))["ended_at"] - accepted) < timedelta(seconds=1)


async def test_write_of_a_fact_outlives_its_caller(world: World, database_url: str):
    one, _ = await ready(world)
    async with behind_a_proxy(database_url) as (database, proxy):
        proxy.cut()
        writes = PersistentWrites(database)
        set_name = text("UPDATE instance SET image = 'written' WHERE id = :id")
        caller = asyncio.create_task(
            writes.write(lambda session: session.execute(set_name, {"id": one}), first=database.write, words={})
        )
        await asyncio.sleep(0.2)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert (await world.instance(one))["image"] != "written"

        proxy.mend()

        async def is_written() -> bool:
            return (await world.instance(one))["image"] == "written"

        await until(is_written)


class Waits(NovitaClient):
    """Its removals wait for other calls first."""

    async def delete_instance(self, *args: Any, **options: Any) -> None:
        await asyncio.sleep(0.6)
        WENT_ON.append(now())
        await super().delete_instance(*args, **options)


WENT_ON: list[datetime] = []


async def test_intent_of_a_delete_is_as_old_as_its_call(world: World):
    one, _ = await ready(world)
    world.faults(Fault(FaultKind.LOST_ANSWER, (DELETE,), times=1))
    world.novita.__class__ = Waits
    deletion = await world.delete(one)

    await world.work_once()

    assert await world.value(SENT_AT, deletion) > WENT_ON[-1]
    assert world.calls(DELETE) == 1


async def test_intent_after_an_unanswered_delete_stays_as_it_was(world: World):
    """The first one may have been done, which nothing has shown."""
    one, _ = await ready(world)
    world.faults(Fault(FaultKind.HANG_AFTER, (DELETE,), times=1), Fault(FaultKind.ERROR, ("GET /gpu/instance",)))
    deletion = await world.delete(one)
    await world.work_once()
    await world.execute(WAITED.replace("1 minute", "3 minutes"))
    sent_at = await world.value(SENT_AT, deletion)
    world.novita.__class__ = Waits

    await world.hurry()
    await world.work_once()

    assert await world.value(SENT_AT, deletion) == sent_at
    assert sent_at is not None
    assert world.calls(DELETE) == 2  # after two minutes it does not wait for a look any longer


async def test_intent_of_the_removal_of_a_second_machine_is_as_old_as_its_call(world: World):
    await replaced(world)
    world.faults(Fault(FaultKind.LOST_ANSWER, (DELETE,), times=1))
    world.novita.__class__ = Waits

    await until_called(world, DELETE)

    sent_at = await world.value("SELECT removal_sent_at FROM machine WHERE removing_from IS NOT NULL")
    assert sent_at > WENT_ON[-1]


async def removed_without_a_response(world: World, novita_id: str) -> datetime:
    """The machine was removed half a minute after the intent was written, and is shown as removed; since when."""
    simulated = world.simulator.world
    for _ in range(100):
        simulated.advance()
        if simulated.instance(novita_id).status == "removed":
            break
        simulated.clock.set_now(simulated.clock.now() + 0.5)
    machine = simulated.instance(novita_id)
    machine.last_stopped_at = (now() - AGO / 2).timestamp()
    return datetime.fromtimestamp(int(machine.last_stopped_at), UTC)


@pytest.mark.parametrize("is_second", [False, True])
async def test_time_that_the_provider_names_counts_before_that_of_the_intent(world: World, is_second: bool):
    one: UUID | None = None
    if is_second:
        _, machine, _ = await replaced(world)
        await began_earlier(world)
    else:
        one, machine = await ready(world)
        await world.delete(one)
    world.simulator.world.set_dialect(world.simulator.world.dialect.changed({"removed_shown": 600}))
    world.faults(Fault(FaultKind.LOST_ANSWER, (DELETE,), times=1))
    await until_called(world, DELETE)
    for waited in (WAITED, MACHINE_WAITED):
        await world.execute(waited)
    stopped_at = await removed_without_a_response(world, machine)

    async def is_ended() -> bool:
        return (await entry_of(world, machine))["ended_at"] is not None

    await world.work_until(is_ended)

    assert (await entry_of(world, machine))["ended_at"] == stopped_at


async def half_a_minute_passes(world: World, machine: str, *, is_second: bool) -> datetime:
    """Since a removal was sent that had no response; when that was."""
    for waited in (WAITED, MACHINE_WAITED):
        await world.execute(waited.replace("1 minute", "30 seconds"))
    return await time_of_sending(world, machine, is_second=is_second)


async def time_of_sending(world: World, machine: str, *, is_second: bool) -> datetime:
    if is_second:
        return await world.value("SELECT removal_sent_at FROM machine WHERE novita_id = $1", machine)
    return await world.value("SELECT CAST(before ->> 'sent_at' AS timestamptz) FROM operation WHERE kind = 'DELETE'")


async def to_be_removed(world: World, *, is_second: bool) -> str:
    """A machine that has run for an hour, and is to be removed: its instance, or only itself."""
    world.simulator.world.set_dialect(world.simulator.world.dialect.changed({"removed_shown": 600}))
    if is_second:
        _, machine, _ = await replaced(world)
        await began_earlier(world)
    else:
        one, machine = await ready(world)
        await world.delete(one)
    return machine


async def end_of(world: World, machine: str) -> datetime:
    async def is_ended() -> bool:
        return (await entry_of(world, machine))["ended_at"] is not None

    await world.work_until(is_ended)
    return (await entry_of(world, machine))["ended_at"]


@pytest.mark.parametrize("is_second", [False, True])
@pytest.mark.parametrize("unreadable", [FaultKind.ERROR, FaultKind.UNKNOWN_STATUS])
async def test_removal_without_a_response_is_not_repeated_before_a_look(
    world: World, is_second: bool, unreadable: FaultKind
):
    """It had ended the machine, which is gone before it can be read again."""
    machine = await to_be_removed(world, is_second=is_second)
    world.faults(Fault(FaultKind.LOST_ANSWER, (DELETE,), times=1))
    await until_called(world, DELETE)
    sent_at = await half_a_minute_passes(world, machine, is_second=is_second)
    world.faults(Fault(unreadable, (LOOK,), times=1))
    looks = world.calls(LOOK)

    async def is_looked_at() -> bool:
        return world.calls(LOOK) > looks

    await world.work_until(is_looked_at)
    simulated = world.simulator.world
    simulated.forget_instance(simulated.instance(machine))

    assert await end_of(world, machine) == sent_at


@pytest.mark.parametrize("is_second", [False, True])
async def test_removal_that_is_accepted_again_after_the_machine_was_not_found(world: World, is_second: bool):
    machine = await to_be_removed(world, is_second=is_second)
    world.faults(Fault(FaultKind.LOST_ANSWER, (DELETE,), times=1))
    await until_called(world, DELETE)
    sent_at = await half_a_minute_passes(world, machine, is_second=is_second)
    simulated = world.simulator.world
    simulated.forget_instance(simulated.instance(machine))
    world.faults(Fault(FaultKind.GARBAGE, (DELETE,), times=1, body="{}"))

    assert await end_of(world, machine) == sent_at
    assert world.calls(DELETE) == 2


@pytest.mark.parametrize("is_reclaim", [False, True])
async def test_delete_of_a_machine_that_may_have_ended_waits_for_a_look(world: World, is_reclaim: bool):
    one, machine = await ready(world)
    if is_reclaim:
        lifecycle.exit_by_itself(world.simulator.world, world.simulator.world.instance(machine), code=0)
        await world.execute("UPDATE instance SET spot_reclaim_at = now() - interval '1 minute'")
    else:
        world.faults(Fault(FaultKind.LOST_ANSWER, (STOP,), times=1))
        await ask(world, OperationKind.STOP, one)
        await until_called(world, STOP)
        hasten(world)
    stopped_at = stopped_a_minute_ago(world, machine)
    deletion = await world.delete(one)
    world.faults(Fault(FaultKind.ERROR, (LOOK,), times=1))

    await world.work_until_over(deletion)

    assert (await only_entry(world))["ended_at"] == stopped_at


class Freezes(NovitaClient):
    """Its process is frozen right after it has read the response to a removal."""

    async def delete_instance(self, *args: Any, **options: Any) -> None:
        await super().delete_instance(*args, **options)
        await asyncio.sleep(1.5)


@pytest.mark.parametrize("is_second", [False, True])
async def test_acceptance_is_no_later_than_its_call_may_take(world: World, is_second: bool):
    await world.configure(request_timeout=timedelta(seconds=1))
    machine = await to_be_removed(world, is_second=is_second)
    world.simulator.world.set_dialect(world.simulator.world.dialect.changed({"deletes_at_once": True}))
    world.novita.__class__ = Freezes

    ended_at = await end_of(world, machine)

    sent_at = await time_of_sending(world, machine, is_second=is_second)
    assert ended_at - sent_at < timedelta(seconds=1.4)
