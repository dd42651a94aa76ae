"""The load of GPUs, set through the control API, is what the metrics show."""

from typing import Any

import pytest

from tests.server.simulator.account import Account


async def gpu(account: Account, instance_id: str, *, since: int, until: int) -> dict[int, float]:
    """The utilisation of its GPU by time, one value a minute."""
    query: dict[str, Any] = {"instanceId": instance_id, "startTime": since, "endTime": until, "interval": 60}
    url = f"{account.simulator.url}/openapi/v1/metrics/gpu/instance"
    async with account.session.get(url, params=query) as response:
        assert response.status == 200
        answer = await response.json()
    (series,) = answer["gpuUtilization"]["gpuIds"]
    return {int(point["timestamp"]): point["value"] for point in series["items"]}


async def test_load_is_set_for_the_past_and_the_future_and_later_calls_win(account: Account):
    instance_id = await account.running()
    at = int(account.simulator.world.clock.wall()) // 60 * 60
    load = f"/instances/{instance_id}/load"
    assert await account.control("POST", load, gpuPercent=0, **{"from": at - 600, "to": at + 600}) == {"loads": 1}
    assert await account.control("POST", load, gpuPercent=90, **{"from": at - 300, "to": at - 300}) == {"loads": 2}
    assert await account.control("POST", load, gpuPercent="missing", **{"from": at - 200, "to": at - 100}) == {
        "loads": 3
    }

    past = await gpu(account, instance_id, since=at - 600, until=at - 120)
    gone = {at - 180, at - 120}
    assert past == {each: 90 if each == at - 300 else 0 for each in range(at - 600, at - 119, 60) if each not in gone}

    account.time.passed += 600
    future = await gpu(account, instance_id, since=at + 60, until=at + 300)
    assert future == dict.fromkeys(range(at + 60, at + 301, 60), 0)


async def test_the_newest_minute_is_missing(account: Account):
    instance_id = await account.running()
    await account.control("POST", f"/instances/{instance_id}/load", gpuPercent=50)
    account.time.passed += 600
    at = account.simulator.world.clock.wall()

    shown = await gpu(account, instance_id, since=int(at) - 300, until=int(at))

    assert set(shown.values()) == {50}
    assert 60 <= at - max(shown) < 120


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"gpuPercent": 101}, 'gpuPercent must be 0 to 100 or "missing"'),
        ({"gpuPercent": "idle"}, 'gpuPercent must be 0 to 100 or "missing"'),
        ({}, 'gpuPercent must be 0 to 100 or "missing"'),
        ({"gpuPercent": 5, "from": 20, "to": 10}, "from and to must be times in seconds"),
        ({"gpuPercent": 5, "from": "now"}, "from and to must be times in seconds"),
    ],
)
async def test_wrong_load_is_refused(account: Account, body: dict[str, Any], message: str):
    instance_id = await account.running()

    assert (await account.control("POST", f"/instances/{instance_id}/load", **body))["message"] == message
    assert account.simulator.world.loads == {}


async def test_load_of_an_unknown_instance_is_not_found(account: Account):
    assert (await account.control("POST", "/instances/nothing/load", gpuPercent=1))["code"] == 404
