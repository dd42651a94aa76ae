"""instanceMetrics: read live, shared for 15 s, null without a machine, and errors as for sshAccess."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from schema import ids
from server.enums import InstanceStatus, Role
from server.instances.provider import live_reads
from server.instances.provider.reader import METRICS_TTL
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api

ROUTE = "GET /openapi/v1/metrics/gpu/instance"
METRICS = """
    query ($id: ID!, $since: DateTime, $until: DateTime, $interval: Duration! = 60) {
      instanceMetrics(instanceId: $id, since: $since, until: $until, interval: $interval) {
        gpu { gpuId points { at percent } } gpuMemory { gpuId points { at percent } }
        cpu { at percent } memory { at percent } disk { at percent }
      }
    }
"""
HOUR = timedelta(hours=1)


async def machine_of(api: Api) -> tuple[str, str]:
    """A READY instance whose machine was busy for an hour: its id and the machine's."""
    id = (await api.create())["instance"]["id"]
    row_id = ids.parse(ids.INSTANCE, id)
    await api.world.work_until_status(row_id, InstanceStatus.READY)
    machine = (await api.world.instance(row_id))["novita_id"]
    at = datetime.now(UTC).timestamp()
    api.world.simulator.world.loads[machine] = [(at - 3600, at, 7.0)]
    return id, machine


def window(end: datetime, **more: Any) -> dict[str, Any]:
    return {"since": (end - HOUR).isoformat(), "until": end.isoformat(), **more}


async def test_every_series_has_points_in_percent_at_their_times(api: Api):
    id, _ = await machine_of(api)
    end = datetime.now(UTC)
    shown = (await api.ask(METRICS, id=id, **window(end))).data["instanceMetrics"]
    (gpu,), (gpu_memory,) = shown["gpu"], shown["gpuMemory"]
    assert {point["percent"] for point in gpu["points"]} == {7.0}
    for series in (gpu["points"], gpu_memory["points"], shown["cpu"], shown["memory"], shown["disk"]):
        assert series
        assert all(0 <= point["percent"] <= 100 for point in series)
        times = [datetime.fromisoformat(point["at"]) for point in series]
        assert end - HOUR - timedelta(minutes=1) <= times[0] <= times[-1] <= end
        assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=1)}


async def test_requests_of_one_time_share_one_call_and_later_ones_read_again(api: Api):
    id, _ = await machine_of(api)
    end = datetime.fromtimestamp(datetime.now(UTC).timestamp() // 60 * 60, tz=UTC)
    calls = api.world.calls(ROUTE)
    within = [window(end + timedelta(seconds=seconds)) for seconds in (0, 7, 14)]
    await asyncio.gather(*(api.ask(METRICS, id=id, **each) for each in (*within, *within)))
    assert api.world.calls(ROUTE) == calls + 1
    await api.ask(METRICS, id=id, **window(end + timedelta(seconds=15)))
    assert api.world.calls(ROUTE) == calls + 2
    assert timedelta(seconds=15) == METRICS_TTL


async def test_null_without_a_machine_and_for_instances_of_others(api: Api):
    id, _ = await machine_of(api)
    waiting = (await api.create(name="waiting"))["instance"]["id"]
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    calls = api.world.calls(ROUTE)
    for token, asked in ((None, waiting), (stranger, id), (None, ids.format_id(ids.INSTANCE, UUID(int=7)))):
        assert (await api.ask(METRICS, token=token, id=asked)).data == {"instanceMetrics": None}
    assert api.world.calls(ROUTE) == calls


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval": 15},
        {"since": "2026-11-18T10:00:00Z", "until": "2026-11-18T10:00:00Z"},
        {"since": "2026-11-18T10:00:00Z", "until": "2026-11-19T10:00:00Z"},  # 1,440 points
    ],
)
async def test_ranges_that_the_provider_refuses_are_not_asked_for(api: Api, wrong: dict[str, Any]):
    id, _ = await machine_of(api)
    calls = api.world.calls(ROUTE)
    assert (await api.ask(METRICS, id=id, **wrong)).error["code"] == "INVALID_METRICS_RANGE"
    assert api.world.calls(ROUTE) == calls


async def test_provider_that_fails_or_says_nothing_is_a_retryable_error(api: Api, monkeypatch: pytest.MonkeyPatch):
    id, _ = await machine_of(api)
    monkeypatch.setattr(live_reads, "FETCH_TIMEOUT", timedelta(seconds=0.5))
    end = datetime.now(UTC) - HOUR
    for number, kind in enumerate((FaultKind.HANG, FaultKind.ERROR)):
        api.world.faults(Fault(kind, (ROUTE,), status=503))
        answer = await api.ask(METRICS, id=id, **window(end + number * METRICS_TTL))
        assert answer.body["data"] == {"instanceMetrics": None}
        assert answer.error["retryable"] is True
