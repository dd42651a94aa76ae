"""Ports of an instance really listen: refused, then 502, then 200, then refused again."""

import asyncio
import socket
import time
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from tests.server.simulator.account import Account, open_account

DEADLINE = 10.0


async def knock(account: Account, url: str) -> int | str:
    """The current behaviour of the port. Reads the instance first, like a client that needs the address."""
    await account.get("/clusters")
    try:
        async with account.session.get(url) as answer:
            await answer.read()
            return answer.status
    except aiohttp.ClientConnectorError:
        return "refused"
    except aiohttp.ClientConnectionError:
        return "reset"


async def url_of(account: Account, instance_id: str) -> str:
    return (await account.instance(instance_id))["portMappings"][0]["endpoint"]


async def knocks(account: Account, url: str, seconds: float) -> list[int | str]:
    """The different responses over that many simulated seconds."""
    seen: list[int | str] = []
    for _ in range(int(seconds * 10)):
        now = await knock(account, url)
        if now not in seen[-1:]:
            seen.append(now)
        account.time.passed += 0.1
    return seen


async def test_an_http_endpoint_refuses_then_fails_then_answers_and_refuses_after_the_stop(account: Account):
    instance_id = await account.create()
    await account.statuses_until(instance_id, "running")
    url = await url_of(account, instance_id)

    assert await knocks(account, url, 7) == ["refused", 502, 200]
    async with account.session.get(url + "/health?x=1") as answer:
        assert await answer.json() == {"status": "ok", "instance": "trainer-1", "port": 8888, "path": "/health?x=1"}

    await account.post("/gpu/instance/stop", instanceId=instance_id)
    assert await knock(account, url) == "refused"


@pytest.mark.parametrize("is_kept", [False, True])
async def test_files_on_the_own_disk_outlive_a_stop_and_by_dialect_a_migration(account: Account, is_kept: bool):
    await account.control("POST", "/dialect", migrate_keeps_disk=is_kept)
    instance_id = await account.running()

    async def request(method: str, **options: Any) -> tuple[int, bytes]:
        url = await url_of(account, instance_id)
        account.time.passed += 10
        await account.get("/clusters")
        async with account.session.request(method, f"{url}/disk/model", **options) as answer:
            return answer.status, await answer.read()

    assert await request("PUT", data=b"weights") == (201, b"")
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 10
    await account.post("/gpu/instance/start", instanceId=instance_id)
    account.time.passed += 12
    assert await request("GET") == (200, b"weights")

    await account.post("/gpu/instance/migrate", instanceId=instance_id)
    account.time.passed += 20

    assert await request("GET") == ((200, b"weights") if is_kept else (404, b"no such file\n"))


async def test_a_tcp_endpoint_refuses_then_greets_and_is_cut_by_the_stop(account: Account):
    instance_id = await account.create(ports="22/tcp")
    await account.statuses_until(instance_id, "running")
    host, _, port = (await url_of(account, instance_id)).partition(":")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))

    account.time.passed += 3
    await account.get("/clusters")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert (await reader.readline()).startswith(b"SSH-2.0-")

    await account.post("/gpu/instance/stop", instanceId=instance_id)
    async with asyncio.timeout(DEADLINE):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize(
    ("mode", "expected"), [("503", 503), ("badGateway", 502), ("errorPage", 200), ("reset", "reset"), ("", 200)]
)
async def test_an_endpoint_can_be_made_to_fail(account: Account, mode: str, expected: int | str):
    instance_id = await account.running()
    account.time.passed += 10
    url = await url_of(account, instance_id)
    assert await knock(account, url) == 200

    await account.control("POST", f"/instances/{instance_id}/endpoint", port=8888, mode=mode)

    assert await knock(account, url) == expected


async def test_a_restarted_instance_starts_over_with_refusing_at_the_same_address(account: Account):
    instance_id = await account.running()
    account.time.passed += 10
    url = await url_of(account, instance_id)
    assert await knock(account, url) == 200

    await account.post("/gpu/instance/restart", instanceId=instance_id)
    assert await knock(account, url) == "refused"
    await account.statuses_until(instance_id, "running")

    assert await url_of(account, instance_id) == url
    assert await knocks(account, url, 7) == ["refused", 502, 200]


async def test_listeners_open_in_real_time_without_requests():
    async with (
        Simulator(SimulatorOptions(speed=100)) as simulator,
        aiohttp.ClientSession(headers={"Authorization": "Bearer any"}) as session,
    ):
        account = Account(simulator, session, None)  # pyright: ignore[reportArgumentType]
        instance_id = await account.create()
        deadline = time.monotonic() + DEADLINE
        while not (url := await url_of(account, instance_id)):
            assert time.monotonic() < deadline
        status = 0
        while status != 200:
            assert time.monotonic() < deadline
            with suppress(aiohttp.ClientConnectorError):
                async with session.get(url) as answer:
                    status = answer.status


async def test_beyond_the_limit_endpoints_share_a_listener_and_descriptors_stay_bounded():
    async with open_account(SimulatorOptions(max_listeners=4, stock_factor=100)) as account:
        ids = [await account.create(name=f"many-{number}") for number in range(40)]
        account.time.passed += 30

        shown = [(await account.instance(each))["portMappings"] for each in ids]

        urls, addresses = {http["endpoint"] for http, _ in shown}, {tcp["endpoint"] for _, tcp in shown}
        assert len(urls) + len(addresses) == 4 + 2
        account.time.passed += 10
        assert {await knock(account, url) for url in urls} == {200}


async def test_two_simulators_in_one_loop_do_not_meet(account: Account):
    async with open_account(SimulatorOptions()) as other:
        assert other.simulator.url != account.simulator.url
        await account.create()
        assert (await other.get("/gpu/instances"))[1]["total"] == 0


async def test_a_port_that_is_taken_is_an_error_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        simulator = Simulator(SimulatorOptions(port=taken.getsockname()[1]))
        with pytest.raises(OSError, match="in use"):
            await simulator.start()


async def test_the_log_addresses_of_an_instance_answer(account: Account):
    instance_id = await account.running()
    shown = await account.instance(instance_id)

    async with account.session.get(shown["connectComponentLog"]["systemLogAddress"]) as answer:
        text = await answer.text()

    assert "created trainer-1 on RTX 4090 24GB" in text
    assert text.endswith("started ubuntu:22.04, run 1\n")  # a log only grows, so it does not say what is now
