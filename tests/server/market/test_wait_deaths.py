"""Workers that die at every place of a wait: after each commit, and before and after each call of the provider."""

from uuid import UUID

from server.enums import InstanceStatus, OperationKind
from server.instances.commands.lifecycle import Target, accept
from server.instances.drafts import StartDraft
from server.market.wait_draft import WaitDraft
from tests.server.market.polls import Market
from tests.server.market.test_start_waits import exited
from tests.server.market.waiters import CREATE, HOUR, create, names_made, row, stock
from tests.support.accounting import machines_unaccounted
from tests.support.deaths import Deaths
from tests.support.lifecycle import START

S = InstanceStatus
ASLEEP = "SELECT count(*) FROM capacity_wait WHERE job_id IS NULL"


async def wait_events(market: Market, instance_id: UUID) -> set[str]:
    return {each for each in await market.world.event_types(instance_id) if each.startswith("wait.")}


async def test_creates_get_one_machine_each_in_their_order(empty: Market):
    world, deaths = empty.world, Deaths(empty.world)
    accepted = [await create(empty, name) for name in ("first", "second")]

    async def are_asleep() -> bool:
        return await world.value(ASLEEP) == 2

    await deaths.work_until(are_asleep)
    before = len(deaths.places)
    assert (before > 0, world.calls(CREATE)) == (True, 0)
    await stock(empty, 2)

    async def are_ready() -> bool:
        return await world.value("SELECT count(*) FROM instance WHERE status = 'READY'") == 2

    await deaths.work_until(are_ready)

    assert await names_made(empty) == ["first", "second"]
    assert (world.made(), world.calls(CREATE)) == (2, 2)
    assert len(deaths.places) - before >= 5  # of which two are before and after the create
    assert [await row(empty, each) for each in accepted] == [None, None]
    for each in accepted:
        assert await wait_events(empty, each.instance.id) == {"wait.began", "wait.matched"}
    assert await machines_unaccounted(world) == []


async def test_start_goes_on_with_its_machine_once(market: Market):
    world, deaths = market.world, Deaths(market.world)
    await market.poll()
    instance_id = await exited(market)
    machine = (await world.instance(instance_id))["novita_id"]
    draft = StartDraft(on_no_capacity=WaitDraft(length=HOUR))
    accepted = await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller, draft=draft)

    async def is_asleep() -> bool:
        return await world.value(ASLEEP) == 1

    await deaths.work_until(is_asleep)
    before = len(deaths.places)
    await stock(market, 1)

    async def is_ready() -> bool:
        return (await world.instance(instance_id))["status"] == S.READY

    await deaths.work_until(is_ready)

    assert (before > 0, len(deaths.places) > before) == (True, True)
    assert ((await world.instance(instance_id))["novita_id"], world.made()) == (machine, 1)
    assert await row(market, accepted) is None
    # Each start that was accepted by the provider is known to be: it is not repeated.
    assert world.simulator.world.instances[machine].status == "running"
    assert world.calls(START) >= 2
