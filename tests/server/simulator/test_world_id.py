"""Every world has an id, which its responses carry and its state file keeps."""

from pathlib import Path

import orjson

from server.simulator.options import SimulatorOptions
from server.simulator.world import World
from tests.server.simulator.account import PREFIX, Account, open_account

HEADER = "X-Simulator-World"


async def shown(account: Account, path: str, **headers: str) -> tuple[int, str | None]:
    async with account.session.get(account.simulator.url + PREFIX + path, headers=headers) as answer:
        return answer.status, answer.headers.get(HEADER)


async def test_every_response_names_the_world(account: Account):
    world = account.simulator.world.id
    assert (await account.control("GET", "/state"))["world"] == world
    assert await shown(account, "/clusters") == (200, world)
    assert await shown(account, "/gpu/instance?instanceId=none") == (404, world)
    assert await shown(account, "/clusters", Authorization="") == (401, world)
    await account.faults({"kind": "badGateway", "times": 1}, {"kind": "error", "times": 1})
    assert [await shown(account, "/clusters") for _ in range(2)] == [(502, world), (500, world)]


async def test_an_anonymous_simulator_does_not_name_its_world():
    async with open_account(SimulatorOptions(is_anonymous=True)) as account:
        assert await shown(account, "/clusters") == (200, None)


def test_a_restarted_world_keeps_its_id_and_another_has_another(tmp_path: Path):
    ids: list[str] = []
    for name in ("one", "one", "two"):
        world = World(SimulatorOptions(state_file=tmp_path / name))
        ids.append(world.id)
        world.close()
    assert ids[0] == ids[1] != ids[2]


def test_the_id_survives_a_rewrite_of_the_state_file(tmp_path: Path):
    options = SimulatorOptions(state_file=tmp_path / "state")
    world = World(options)
    for _ in range(60):
        world.put("auth", "one", {"id": "one", "password": "x" * 40_000})
        world.commit()
    world.close()
    assert options.state_file is not None
    assert options.state_file.stat().st_size < 60 * 40_000

    again = World(options)

    assert again.id == world.id
    again.close()


def test_a_state_file_from_before_worlds_had_ids_gets_one(tmp_path: Path):
    path = tmp_path / "state"
    world = World(SimulatorOptions(state_file=path))
    world.close()
    lines = [[each for each in orjson.loads(line) if each[0] != "world"] for line in path.read_bytes().splitlines()]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    first, second = [World(SimulatorOptions(state_file=path)) for _ in range(2)]

    assert first.id == second.id != world.id
    first.close()
    second.close()
