"""Acknowledged calls survive a kill of the simulator."""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from server.simulator.journal import Journal
from server.simulator.options import SimulatorOptions
from server.simulator.world import World
from tests.server.simulator.account import PREFIX, Account, HandTime, creation, open_account


async def everything(account: Account) -> dict[str, object]:
    return {
        "instances": (await account.get("/gpu/instances", pageSize=1000))[1],
        "templates": (await account.get("/templates", pageSize=1000))[1],
        "auths": (await account.get("/repository/auths"))[1],
        "storages": (await account.get("/networkstorages/list", pageSize=1000))[1],
        "networks": (await account.get("/networks", pageSize=1000))[1],
        "jobs": (await account.get("/jobs", pageSize=1000))[1],
        "prewarms": (await account.get("/image/prewarm", pageSize=1000))[1],
        "stock": await account.control("GET", "/stock"),
        "made": (await account.control("GET", "/state"))["madeByName"],
    }


def without_addresses(world: dict[str, object]) -> str:
    """Log addresses contain the port, which changes with a restart."""
    return str(world).replace("127.0.0.1", "")


async def test_a_world_in_a_file_is_the_same_after_a_restart(tmp_path: Path):
    hand = HandTime()
    options = SimulatorOptions(state_file=tmp_path / "world.journal", price_drift=0)
    async with open_account(options, hand) as account:
        running = await account.running(name="kept", billingMode="spot")
        deleted = await account.create(name="gone")
        await account.post("/gpu/instance/delete", instanceId=deleted)
        await account.post("/template/create", template=template())
        await account.post("/template/delete", templateId="107673")
        await account.post("/repository/auth/save", name="r.test", username="u", password="p")
        await account.post("/networkstorage/create", clusterId="us-ca-6", storageName="s", storageSize=10)
        await account.post("/network/create", clusterId="us-ca-6", name="n")
        await account.post("/gpu/instance/migrate", instanceId=running)
        await account.post("/image/prewarm", imageUrl="i:1", clusterId="us-ca-6", productIds=["4090.16c62g"])
        await account.control("POST", "/stock", productId="26", clusterId="as-sgp-2", free=1)
        hand.passed += 8
        port = account.simulator.url.rpartition(":")[2]
        before = await everything(account)

    async with open_account(options, hand) as account:
        after = await everything(account)
        own_port = account.simulator.url.rpartition(":")[2]

    assert without_addresses(after).replace(own_port, port) == without_addresses(before)
    assert before["made"] == {"kept": 1, "gone": 1}


async def test_time_goes_on_while_the_simulator_is_down(tmp_path: Path):
    hand = HandTime()
    options = SimulatorOptions(state_file=tmp_path / "world.journal")
    async with open_account(options, hand) as account:
        new, stopping = await account.create(), await account.running()
        await account.post("/gpu/instance/stop", instanceId=stopping)
        doomed = await account.create()
        await account.post("/gpu/instance/delete", instanceId=doomed)

    hand.passed += 20
    async with open_account(options, hand) as account:
        assert await account.status(new) == "running"
        assert await account.status(stopping) == "exited"
        assert (await account.get("/gpu/instance", instanceId=doomed))[0] == 404
        assert account.simulator.world.catalog.taken["4090.16c62g", "us-ca-6"] == 1


async def test_a_running_instance_gets_its_ports_back(tmp_path: Path):
    hand = HandTime()
    options = SimulatorOptions(state_file=tmp_path / "world.journal")
    async with open_account(options, hand) as account:
        instance_id = await account.running()
        hand.passed += 10
        before = (await account.instance(instance_id))["portMappings"]

    async with open_account(options, hand) as account:
        after = (await account.instance(instance_id))["portMappings"]
        for _ in range(200):
            try:
                async with account.session.get(after[0]["endpoint"]) as answer:
                    status = answer.status
                    break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)

    assert after == before
    assert status == 200


def test_a_journal_cut_within_its_last_line_loads_without_that_request(tmp_path: Path):
    path = tmp_path / "world.journal"
    options = SimulatorOptions(state_file=path)
    world = World(options)
    world.put("auth", "first", {"id": "first", "name": "ä"})
    world.commit()
    whole = path.stat().st_size
    world.put("auth", "second", {"id": "second", "name": "b"})
    world.put("storage", "third", {"id": "third"})
    world.commit()
    world.close()
    data = path.read_bytes()

    for size in (*range(whole, len(data), 7), len(data) - 1):
        path.write_bytes(data[:size])
        loaded = World(options)
        assert set(loaded.table("auth")) - {"75irlsvvsehnqdajg2r481mjk54ecodc"} == {"first"}
        assert loaded.table("storage") == {}
        loaded.put("auth", "after", {"id": "after"})
        loaded.commit()
        loaded.close()
        again = World(options)
        assert "after" in again.table("auth")
        again.close()


def test_a_long_history_is_rewritten_as_its_result(tmp_path: Path):
    path = tmp_path / "world.journal"
    options = SimulatorOptions(state_file=path)
    world = World(options)
    for number in range(20_000):
        world.put("auth", "one", {"id": "one", "name": f"{number:0100d}"})
        world.commit()
    world.close()

    assert path.stat().st_size < 1 << 20
    again = World(options)
    assert again.table("auth")["one"]["name"] == f"{19_999:0100d}"
    again.close()
    assert list(tmp_path.iterdir()) == [path]


def test_a_rewrite_that_was_interrupted_leaves_the_old_file_in_force(tmp_path: Path):
    path = tmp_path / "world.journal"
    journal = Journal(path)
    journal.append([("auth", "a", {"id": "a"})])
    path.with_name("world.journal.new").write_bytes(b'[["auth","b",{"id"')
    journal.close()

    again = Journal(path)
    assert again.read() == [("auth", "a", {"id": "a"})]
    again.rewrite([("auth", "a", {"id": "a"})])
    again.close()
    third = Journal(path)
    assert third.read() == [("auth", "a", {"id": "a"})]
    third.close()


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path):
    path = tmp_path / "world.journal"
    World(SimulatorOptions(state_file=path)).close()

    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
async def test_every_answered_call_survives_a_kill_at_any_moment(tmp_path: Path):
    """Killed and restarted three times under load: acknowledged creates exist once, others fully or not at all."""
    state_file = tmp_path / "world.journal"
    answered: dict[str, str] = {}
    asked: set[str] = set()
    chance = random.Random(7)
    for cycle in range(3):
        process, url = await start_process(state_file)
        kill_at = time.monotonic() + 0.15 + chance.random() * 0.2
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer any"}) as session:
            callers = [
                asyncio.create_task(keep_creating(session, url, f"cycle-{cycle}-{number}", asked, answered))
                for number in range(4)
            ]
            while time.monotonic() < kill_at or len(answered) < 10 * (cycle + 1):
                await asyncio.sleep(0.01)
                assert time.monotonic() < kill_at + 20
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            await asyncio.gather(*callers)

    process, url = await start_process(state_file)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer any"}) as session:
        async with session.get(url + "/control/state") as answer:
            made = (await answer.json())["madeByName"]
        found: dict[str, str] = {}
        for page in range(1, 100):
            async with session.get(f"{url}{PREFIX}/gpu/instances?pageSize=100&pageNum={page}") as answer:
                rows = (await answer.json())["instances"]
            found.update({each["id"]: each["name"] for each in rows})
            if len(rows) < 100:
                break
    process.terminate()
    await process.wait()

    assert len(answered) >= 30
    assert answered.items() <= found.items()
    assert set(found.values()) <= asked
    assert set(made.values()) == {1}
    assert set(made) == set(found.values())


async def keep_creating(
    session: aiohttp.ClientSession, url: str, name: str, asked: set[str], answered: dict[str, str]
) -> None:
    for number in range(100_000):
        body = creation(name=f"{name}-{number}", ports=None)
        asked.add(str(body["name"]))
        try:
            async with session.post(url + PREFIX + "/gpu/instance/create", json=body) as answer:
                answered[(await answer.json())["id"]] = str(body["name"])
        except aiohttp.ClientError:
            return


async def start_process(state_file: Path) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "server.simulator", "--stock-factor", "10000"),
        *("--state-file", str(state_file)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        line = await process.stdout.readline()
    return process, line.decode().strip()


def template() -> dict[str, object]:
    return {"name": "t", "type": "instance", "channel": "private", "image": "ubuntu", "rootfsSize": 20}
