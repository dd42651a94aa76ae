"""Monitors that are due at once share provider calls and occupy no tasks while they wait."""

import asyncio
import time

from server.enums import InstanceStatus
from server.instances.provider.few_machines import SINGLE_POLL_BURST, SINGLE_POLLS_MAX
from server.queue.kinds import MonitorInstance, MonitorStartup
from tests.support.machines import SINGAPORE_ID, make_machine, make_running
from tests.support.waiting import until
from tests.support.world import GET, LIST, World

MANY = 60


async def test_sixty_monitors_cost_a_page_and_a_burst_not_sixty_calls(world: World):
    world.stock(SINGAPORE_ID, 1000)
    world.simulator.world.set_speed(0.0001)  # they stay where they begin
    machines = await asyncio.gather(*(make_machine(world, f"slow-{number}") for number in range(MANY)))
    for machine in machines:
        await _monitored(world, machine)

    began = time.monotonic()

    async def all_seen() -> bool:
        return await world.value("SELECT count(*) FROM instance WHERE observed_at IS NULL") == 0

    await world.work_until(all_seen)

    # A page a second and five single polls a second is what is allowed without a limit, however slow this machine is.
    took = time.monotonic() - began
    assert world.calls(LIST) <= 1 + took
    assert world.calls(GET) <= SINGLE_POLL_BURST + 5 * took
    assert world.calls(LIST) + world.calls(GET) < MANY
    assert await world.value("SELECT count(*) FROM job WHERE attempts > 0") == 0


async def test_starts_of_machines_without_endpoints_cost_pages_only(world: World):
    machines = await make_running(world, 12, http=False)
    for machine in machines:
        row = await world.put(InstanceStatus.STARTING, novita_id=machine, novita_status="starting")
        operation_id = await world.value(
            "INSERT INTO operation (id, project_id, instance_id, kind, status, phase)"
            " VALUES (gen_random_uuid(), $1, $2, 'START', 'RUNNING', 'PROVISIONING') RETURNING id",
            row.project_id,
            row.id,
        )
        await world.enqueue(MonitorStartup(instance_id=row.id, operation_id=operation_id))

    async def all_ready() -> bool:
        return await world.value("SELECT count(*) FROM instance WHERE status = 'READY'") == len(machines)

    await world.work_until(all_ready)

    assert world.calls(GET) <= SINGLE_POLLS_MAX  # the first ones could not know that so many would come


async def test_a_monitor_that_finds_nothing_new_writes_no_event(world: World):
    world.simulator.world.set_speed(0.0001)
    machine = await make_machine(world)
    instance_id = await _monitored(world, machine)
    await world.work_once()
    first = (await world.instance(instance_id))["observed_at"]

    async def is_seen_again() -> bool:
        return (await world.instance(instance_id))["observed_at"] > first

    await world.work_until(is_seen_again)
    row = await world.instance(instance_id)
    assert (await world.event_types(instance_id)).count("instance.changed") <= 1
    assert row["version"] <= 2


async def test_provider_outage_keeps_the_last_state_and_counts_no_attempt(world: World):
    machines = [await make_machine(world, f"away-{number}") for number in range(12)]
    ids = [await _monitored(world, machine) for machine in machines]
    world.outage()
    for _ in range(3):
        await world.hurry()
        await world.work_once()

    assert {(await world.instance(each))["status"] for each in ids} == {InstanceStatus.STARTING}
    assert await world.value("SELECT count(*) FROM job WHERE attempts > 0") == 0
    world.faults()

    async def all_up() -> bool:
        return await world.value("SELECT count(*) FROM instance WHERE status = 'READY'") == len(ids)

    await world.work_until(all_up)


async def _monitored(world: World, machine: str):
    """An instance that is being followed, as a create leaves it."""
    await until(lambda: machine in world.simulator.world.instances)
    row = await world.put(InstanceStatus.STARTING, novita_id=machine, novita_status="x")
    operation_id = await world.value(
        "INSERT INTO operation (id, project_id, instance_id, kind, status, phase)"
        " VALUES (gen_random_uuid(), $1, $2, 'CREATE', 'RUNNING', 'PROVISIONING') RETURNING id",
        row.project_id,
        row.id,
    )
    await world.enqueue(MonitorInstance(instance_id=row.id, operation_id=operation_id))
    return row.id
