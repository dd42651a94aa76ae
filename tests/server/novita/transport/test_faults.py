"""Fault by fault: what the client does, how long it takes, and what the caller gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from server.errors import (
    CircuitOpen,
    InsufficientResource,
    InvalidStateChange,
    NovitaError,
    ProviderError,
    ProviderNotFound,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
)
from server.novita.client import NovitaClient
from server.novita.models import CreateInstance
from server.novita.transport.circuit_breaker import BreakerState
from server.novita.transport.retry import RetryPolicy
from server.simulator.faults import Fault, FaultKind
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from tests.server.novita.parts import SkippingClock, client_of
from tests.support.waiting import until

GET = "GET /gpu/instance"
CREATE = "POST /gpu/instance/create"
START = "POST /gpu/instance/start"


@dataclass
class Bench:
    """A simulator with one exited and one running instance, and a client whose waits take no time."""

    simulator: Simulator
    client: NovitaClient
    clock: SkippingClock
    running: str
    exited: str
    product_id: str

    def breaks(self, kind: FaultKind, route: str = GET, **fields: Any) -> None:
        self.simulator.world.faults.set([Fault(kind, routes=(route,), **fields)])
        self.simulator.world.calls.clear()
        self.clock.waits.clear()

    def calls(self, route: str = GET) -> int:
        return self.simulator.world.calls[route]

    def made(self, name: str) -> int:
        return self.simulator.world.made[name]

    async def impatient(self, timeout: float) -> None:
        """Set the timeout of each request, in seconds."""
        await self.client.close()
        self.client = client_of(self.simulator.url, clock=self.clock, request_timeout=timedelta(seconds=timeout))
        await self.client.open()

    async def get(self) -> str:
        return (await self.client.instance(self.running)).status

    async def create(self, name: str) -> str:
        request = CreateInstance(name=name, product_id=self.product_id, image="ubuntu", rootfs_gb=10)
        return await self.client.create_instance(request)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = SkippingClock()
    async with (
        Simulator(SimulatorOptions(speed=100_000, stock_factor=100, price_drift=0)) as simulator,
        client_of(simulator.url, clock=clock) as client,
    ):
        product = next(each for each in await client.products() if each.is_deployable)
        bench = Bench(simulator, client, clock, "", "", product.id)
        bench.running, bench.exited = await bench.create("one"), await bench.create("two")
        await _until(client, bench.exited, "running")
        await client.stop_instance(bench.exited)
        await _until(client, bench.exited, "exited")
        await _until(client, bench.running, "running")
        yield bench
        await bench.client.close()


async def _until(client: NovitaClient, novita_id: str, status: str) -> None:
    async with asyncio.timeout(30):
        while True:
            if (await client.instance(novita_id)).status == status:
                return
            await asyncio.sleep(0.002)


async def test_latency_is_waited_for(bench: Bench):
    bench.breaks(FaultKind.LATENCY, seconds=0.1)
    assert await bench.get() == "running"
    assert (bench.calls(), bench.clock.waits) == (1, [])


async def test_429_with_a_time_is_asked_again_after_that_time(bench: Bench):
    bench.breaks(FaultKind.RATE_LIMIT, times=1, retry_after="7")
    assert await bench.get() == "running"
    assert (bench.calls(), bench.clock.waits) == (2, [8.0])  # seven, and the whole jitter of one second


async def test_429_with_a_date_is_asked_again_after_that_date(bench: Bench):
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    bench.breaks(FaultKind.RATE_LIMIT, times=1, retry_after=date)
    assert await bench.get() == "running"
    assert len(bench.clock.waits) == 1
    assert 15 < bench.clock.waits[0] <= 21


async def test_429_for_ever_is_given_up_after_five_attempts_and_opens_nothing(bench: Bench):
    bench.breaks(FaultKind.RATE_LIMIT)
    for _ in range(3):
        with pytest.raises(RateLimited):
            await bench.get()
    assert bench.calls() == 15
    assert bench.clock.waits == [1.0, 2.0, 4.0, 8.0] * 3
    assert bench.client.breaker.state is BreakerState.CLOSED


async def test_429_with_a_time_beyond_the_deadline_is_the_callers_to_wait_for(bench: Bench):
    bench.breaks(FaultKind.RATE_LIMIT, retry_after="3600")
    with pytest.raises(RateLimited) as limited:
        await bench.get()
    assert limited.value.retry_after == timedelta(minutes=5)
    assert (bench.calls(), bench.clock.waits) == (1, [])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (FaultKind.ERROR, {"status": 500}),
        (FaultKind.ERROR, {"status": 503, "reason": "SERVER_ERROR"}),
        (FaultKind.BAD_GATEWAY, {}),
        (FaultKind.HANG, {}),
        (FaultKind.DROP, {}),
        (FaultKind.CUT_JSON, {}),
        (FaultKind.CUT_CONNECTION, {}),
        (FaultKind.GARBAGE, {}),
        (FaultKind.OUTAGE, {"status": 503}),
        (FaultKind.LOST_ANSWER, {}),
        (FaultKind.ERROR_AFTER, {}),
        (FaultKind.HANG_AFTER, {}),
    ],
)
async def test_a_read_that_fails_once_is_made_again_and_succeeds(bench: Bench, kind: FaultKind, fields: dict[str, Any]):
    if kind in (FaultKind.HANG, FaultKind.HANG_AFTER):
        await bench.impatient(1.0)
    bench.breaks(kind, times=1, **fields)
    assert await bench.get() == "running"
    assert bench.calls() == 2
    # aiohttp itself replaces a broken kept-alive connection at once, for reads only.
    assert bench.clock.waits == ([] if kind in (FaultKind.DROP, FaultKind.LOST_ANSWER) else [1.0])


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.ERROR, ProviderError),
        (FaultKind.BAD_GATEWAY, ProviderError),
        (FaultKind.GARBAGE, ProviderError),
        (FaultKind.CUT_JSON, ProviderError),
        (FaultKind.DROP, ProviderUnreachable),
        (FaultKind.HANG, ProviderTimeout),
    ],
)
async def test_a_read_that_always_fails_is_given_up_after_five_attempts(
    bench: Bench, kind: FaultKind, error: type[NovitaError]
):
    if kind is FaultKind.HANG:
        await bench.impatient(0.1)
    bench.breaks(kind)
    with pytest.raises(error) as failure:
        await bench.get()
    assert type(failure.value) is error
    assert bench.clock.waits == [1.0, 2.0, 4.0, 8.0]
    assert failure.value.retryable


async def test_waits_double_up_to_thirty_seconds_and_the_deadline_ends_them(bench: Bench):
    bench.breaks(FaultKind.ERROR)
    retry = RetryPolicy(attempts=100, deadline=timedelta(seconds=100), random=lambda: 1.0)
    async with client_of(bench.simulator.url, clock=bench.clock, retry=retry, breaker_threshold=0) as client:
        with pytest.raises(ProviderError):
            await client.instance(bench.running)
    assert bench.clock.waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_jitter_is_the_whole_of_the_wait(bench: Bench):
    bench.breaks(FaultKind.ERROR)
    drawn = iter([0.0, 0.5, 0.25, 1.0])
    retry = RetryPolicy(random=lambda: next(drawn))
    async with client_of(bench.simulator.url, clock=bench.clock, retry=retry) as client:
        with pytest.raises(ProviderError):
            await client.instance(bench.running)
    assert bench.clock.waits == [0.0, 1.0, 1.0, 8.0]


async def test_an_outage_opens_the_breaker_which_refuses_at_once_and_recovers_by_one_probe(bench: Bench):
    bench.breaks(FaultKind.OUTAGE, status=503)
    with pytest.raises(ProviderError):
        await bench.get()
    assert bench.client.breaker.state is BreakerState.OPEN

    bench.breaks(FaultKind.OUTAGE, status=503)
    with pytest.raises(CircuitOpen) as refused:
        await bench.get()
    assert refused.value.retry_after == timedelta(seconds=60)
    assert bench.calls() == 0

    bench.clock.time += 60
    assert bench.client.snapshot().breaker.circuits == {GET: BreakerState.HALF_OPEN}
    with pytest.raises(CircuitOpen):  # the probe failed, so the breaker was open for its second attempt
        await bench.get()
    assert bench.calls() == 1

    bench.clock.time += 60
    bench.simulator.world.faults.clear()
    bench.simulator.world.calls.clear()
    results = await asyncio.gather(*[bench.get() for _ in range(20)], return_exceptions=True)
    assert results.count("running") == 1
    assert sum(isinstance(each, CircuitOpen) for each in results) == 19
    assert bench.calls() == 1
    assert bench.client.breaker.state is BreakerState.CLOSED


async def test_a_probe_that_is_cancelled_leaves_its_place_to_the_next(bench: Bench):
    bench.breaks(FaultKind.ERROR)
    with pytest.raises(ProviderError):
        await bench.get()
    bench.clock.time += 60
    bench.breaks(FaultKind.HANG)
    probe = asyncio.create_task(bench.get())
    await until(bench.calls)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe

    bench.simulator.world.faults.clear()
    assert await bench.get() == "running"
    assert bench.client.breaker.state is BreakerState.CLOSED


async def test_a_flood_of_unknown_ids_opens_nothing_and_is_asked_once_each(bench: Bench):
    bench.simulator.world.calls.clear()
    results = await asyncio.gather(*[bench.client.instance(f"no{n}") for n in range(200)], return_exceptions=True)
    assert {type(each) for each in results} == {ProviderNotFound}
    assert bench.calls() == 200
    assert bench.client.breaker.state is BreakerState.CLOSED
    assert await bench.get() == "running"


async def test_an_accepted_start_that_reports_an_invalid_change_is_not_repeated(bench: Bench):
    bench.breaks(FaultKind.INVALID_STATE_AFTER, START)
    with pytest.raises(InvalidStateChange) as refused:
        await bench.client.start_instance(bench.exited)
    assert not refused.value.is_certain_refusal
    assert bench.calls(START) == 1
    bench.simulator.world.faults.clear()
    await _until(bench.client, bench.exited, "running")


async def test_a_start_whose_answer_is_lost_is_made_again_and_then_is_an_invalid_change(bench: Bench):
    bench.breaks(FaultKind.LOST_ANSWER, START, times=1)
    with pytest.raises(InvalidStateChange) as refused:
        await bench.client.start_instance(bench.exited)
    assert bench.calls(START) == 2
    assert not refused.value.is_certain_refusal


async def test_a_delete_whose_answer_is_lost_is_made_again(bench: Bench):
    route = "POST /gpu/instance/delete"
    bench.breaks(FaultKind.LOST_ANSWER, route, times=1)
    with suppress(ProviderNotFound):  # the first one may already have completed
        await bench.client.delete_instance(bench.exited)
    assert bench.calls(route) == 2


async def test_a_restart_is_not_made_twice(bench: Bench):
    route = "POST /gpu/instance/restart"
    bench.breaks(FaultKind.LOST_ANSWER, route)
    with pytest.raises(ProviderUnreachable):
        await bench.client.restart_instance(bench.running)
    assert bench.calls(route) == 1


async def test_a_status_of_tomorrow_is_kept(bench: Bench):
    bench.breaks(FaultKind.UNKNOWN_STATUS, word="hibernating")
    assert await bench.get() == "hibernating"


async def test_a_failed_pull_is_a_status_error(bench: Bench):
    bench.breaks(FaultKind.PULL_FAILURE, "POST *")
    novita_id = await bench.create("pulls-badly")
    await _until(bench.client, novita_id, "exited")
    failed = await bench.client.instance(novita_id)
    assert failed.status_error is not None
    assert failed.status_error.message


async def test_an_instance_that_lists_do_not_show_yet_is_found_by_its_id(bench: Bench):
    bench.breaks(FaultKind.LIST_LAG, "POST *", seconds=60.0)
    novita_id = await bench.create("late")
    assert (await bench.client.instance(novita_id)).name == "late"
    assert novita_id not in {each.id for each in await bench.client.all_instances()}


async def test_no_stock_fails_at_once(bench: Bench):
    for place in bench.simulator.world.catalog.total:
        bench.simulator.world.set_stock(*place, 0)
    with pytest.raises(InsufficientResource) as refused:
        await bench.create("nowhere")
    assert refused.value.is_certain_refusal
    assert bench.made("nowhere") == 0
    assert bench.clock.waits == []
