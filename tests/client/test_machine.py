"""`with client.instance(...)`: the machine lives as long as the block, or as long as its program."""

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

import aiohttp
import asyncpg
import pytest
from pilotlight_client import AsyncPilotlight, OperationFailed, Pilotlight
from pilotlight_client.models import InstanceStatus

from tests.support.processes import Up, control
from tests.support.waiting import until

PRODUCT = "RTX 4090 24GB"
PROGRAM = """
import sys, time
from pilotlight_client import Pilotlight
with Pilotlight() as client, client.instance(name=sys.argv[1], product="RTX 4090 24GB", image="nginx") as machine:
    print(machine.id, flush=True)
    time.sleep(600)
"""
# As if the last heartbeat had been two minutes ago, and the end is due.
PASS_TIME = """
    UPDATE instance
    SET heartbeat_at = heartbeat_at - interval '120 s', run_accepted_at = run_accepted_at - interval '120 s'
    WHERE name = $1
"""
MAKE_DUE = """
    UPDATE job SET run_at = now(), due_at = now()
    WHERE unique_key = (SELECT 'lifetime ' || id FROM instance WHERE name = $1)
"""


def new_name() -> str:
    return f"machine-{uuid4().hex[:12]}"


async def test_a_machine_lives_as_long_as_the_block(client: AsyncPilotlight):
    async with client.instance(name=new_name(), product=PRODUCT, image="nginx", ports=[{"port": 80}]) as machine:
        assert machine.instance.status is InstanceStatus.READY
        assert machine.instance.lifetime is not None
        assert machine.instance.lifetime.on_end == "DELETE"
        assert machine.instance.lifetime.heartbeat is not None
        assert machine.instance.lifetime.heartbeat.total_seconds() == 120
        async with aiohttp.ClientSession() as session, session.get(machine.address(80)) as response:
            assert response.status == 200

    assert (await client.get(machine.id)).status in (InstanceStatus.DELETING, InstanceStatus.DELETED)


async def test_a_failing_block_deletes_it_and_shows_its_own_error(client: AsyncPilotlight):
    name = new_name()
    with pytest.raises(ZeroDivisionError):
        async with client.instance(name=name, product=PRODUCT, image="nginx") as machine:
            1 / 0  # noqa: B018
    assert (await client.get(machine.id)).status in (InstanceStatus.DELETING, InstanceStatus.DELETED)


async def test_a_machine_that_fails_to_start_is_deleted(running: Up, client: AsyncPilotlight):
    name = new_name()
    await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "pullFailure"}]})
    try:
        with pytest.raises(OperationFailed):
            async with client.instance(name=name, product=PRODUCT, image="nginx"):
                raise AssertionError("the block must not run")
    finally:
        await control(running.ready["simulatorUrl"], "faults", {"faults": []})
    (left,) = [each async for each in client.list(name_starts_with=name, statuses=list(InstanceStatus))]
    assert left.status in (InstanceStatus.DELETING, InstanceStatus.DELETED)


def test_the_synchronous_block(sync_client: Pilotlight):
    with sync_client.instance(name=new_name(), product=PRODUCT, image="nginx") as machine:
        assert machine.refresh().status is InstanceStatus.READY
    assert sync_client.get(machine.id).status in (InstanceStatus.DELETING, InstanceStatus.DELETED)


async def test_heartbeats_are_sent_during_the_block(
    running: Up, client: AsyncPilotlight, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pilotlight_client.machine.HEARTBEATS_PER_LIMIT", 2400)  # every 50 ms
    async with client.instance(name=new_name(), product=PRODUCT, image="nginx") as machine:

        async def is_beating() -> bool:
            lifetime = (await machine.refresh()).lifetime
            return lifetime is not None and lifetime.last_heartbeat_at is not None

        await until(is_beating)


async def test_a_killed_program_leaves_no_machine(running: Up, client: AsyncPilotlight, tmp_path: Path):
    name = new_name()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        name,
        env={"PILOTLIGHT_URL": running.graphql_url, "PILOTLIGHT_TOKEN": running.token},
        stdout=asyncio.subprocess.PIPE,
    )
    assert started.stdout is not None
    id = (await started.stdout.readline()).decode().strip()
    assert (await client.get(id)).status is InstanceStatus.READY
    started.kill()
    await started.wait()

    connection = await asyncpg.connect(running.ready["databaseUrl"])
    try:
        await connection.execute(PASS_TIME, name)
        await connection.execute(MAKE_DUE, name)
    finally:
        await connection.close()

    async def is_gone() -> bool:
        return (await client.get(id)).status is InstanceStatus.DELETED

    await until(is_gone)
