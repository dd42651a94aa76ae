"""A slow, failing or flooded endpoint takes no capacity from the others."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from server.errors import CircuitOpen, NovitaError, ProviderNotFound
from server.novita.client import NovitaClient
from server.novita.transport.circuit_breaker import BreakerState
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.retry import MonotonicClock, RetryPolicy
from server.simulator.faults import Fault, FaultKind
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from tests.server.novita.parts import client_of
from tests.support.waiting import until

SLOW = "GET /gpu/instance"


def slow_errors(seconds: float) -> tuple[Fault, ...]:
    return (
        Fault(FaultKind.LATENCY, routes=(SLOW,), seconds=seconds),
        Fault(FaultKind.ERROR, routes=(SLOW,), status=503),
    )


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(SimulatorOptions(faults=slow_errors(1.0))) as simulator:
        yield simulator


async def seconds_of(call: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started


async def end(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


def flood(client: NovitaClient, size: int, priority: CallPriority = CallPriority.POLL) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(client.instance(f"n{n}", priority=priority)) for n in range(size)]


async def test_while_one_endpoint_answers_503_slowly_another_takes_its_normal_time(simulator: Simulator):
    delay = 5.0  # not waited for: the flood is cancelled
    simulator.world.faults.set(slow_errors(delay))
    async with client_of(simulator.url, clock=MonotonicClock(), retry=RetryPolicy()) as client:
        normal = statistics.median([await seconds_of(client.clusters) for _ in range(10)])
        tasks = flood(client, 300)
        await until(lambda: simulator.world.calls[SLOW] >= 40)

        beside = [await seconds_of(client.clusters) for _ in range(10)]

        assert not any(task.done() for task in tasks)
        assert statistics.median(beside) < 2 * normal + 0.05
        assert max(beside) < delay / 2
        await end(tasks)


async def test_a_route_with_an_open_breaker_is_refused_and_the_others_work(simulator: Simulator):
    async with client_of(simulator.url, clock=MonotonicClock(), retry=RetryPolicy(attempts=1)) as client:
        results = await asyncio.gather(*flood(client, 10, CallPriority.USER), return_exceptions=True)
        assert all(isinstance(each, NovitaError) for each in results)

        assert client.snapshot().breaker.circuits == {SLOW: BreakerState.OPEN}
        with pytest.raises(CircuitOpen):
            await client.instance("n1")
        assert await client.clusters()


async def test_a_flood_that_waits_for_the_rate_limit_lets_another_call_go_next(simulator: Simulator):
    simulator.world.faults.clear()
    async with client_of(simulator.url, clock=MonotonicClock(), rate_limit_per_minute=600) as client:  # ten a second
        tasks = flood(client, 400)
        await until(lambda: client.limiter.snapshot().waiting[CallPriority.POLL] >= 40)

        user = await seconds_of(lambda: client.clusters(priority=CallPriority.USER))
        poll = await seconds_of(lambda: client.products(priority=CallPriority.POLL))

        assert (user < 10, poll < 10) == (True, True)  # all queued calls need half a minute
        assert client.limiter.snapshot().waiting[CallPriority.POLL] > 0
        await end(tasks)
        assert client.limiter.snapshot().waiting[CallPriority.POLL] == 0


async def test_a_person_finds_a_slot_on_the_very_route_that_polling_fills(simulator: Simulator):
    async with client_of(simulator.url, clock=MonotonicClock(), slots_per_route=8) as client:
        tasks = flood(client, 50)
        await until(lambda: simulator.world.calls[SLOW] == 6)

        person = flood(client, 1, CallPriority.USER)
        await until(lambda: simulator.world.calls[SLOW] == 7)

        await end([*tasks, *person])


async def test_calls_that_wait_for_the_rate_limit_hold_no_slot_that_polling_needs(simulator: Simulator):
    simulator.world.faults.clear()
    async with client_of(simulator.url, clock=MonotonicClock(), slots_per_route=4, rate_limit_per_minute=600) as client:
        tasks = flood(client, 150, CallPriority.USER)  # 60 go at once, the others at ten a second
        await until(lambda: simulator.world.calls[SLOW] >= 60)

        await asyncio.gather(*flood(client, 3, CallPriority.POLL), return_exceptions=True)

        assert sum(not task.done() for task in tasks) > 40
        await end(tasks)


async def test_all_of_a_flood_goes_through_a_route_that_is_short_of_slots_and_of_tokens(simulator: Simulator):
    simulator.world.faults.set([Fault(FaultKind.LATENCY, routes=(SLOW,), seconds=0.05)])
    async with client_of(
        simulator.url, clock=MonotonicClock(), slots_per_route=2, rate_limit_per_minute=2400
    ) as client:
        tasks = [*flood(client, 60, CallPriority.USER), *flood(client, 60, CallPriority.POLL)]
        others = [asyncio.create_task(client.clusters()) for _ in range(200)]

        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert {type(each) for each in answers} == {ProviderNotFound}  # unknown ids: each call was answered
        await asyncio.wait_for(asyncio.gather(*others), 60)
        assert simulator.world.calls[SLOW] == 120


async def test_a_call_that_waits_before_its_next_attempt_holds_no_slot_and_no_token(simulator: Simulator):
    simulator.world.faults.set([Fault(FaultKind.RATE_LIMIT, routes=(SLOW,), retry_after="30", times=8)])
    async with client_of(simulator.url, clock=MonotonicClock(), slots_per_route=4, rate_limit_per_minute=600) as client:
        tasks = flood(client, 8)
        await until(lambda: simulator.world.calls[SLOW] == 8)
        with pytest.raises(NovitaError):  # an unknown id: a response came at once
            await asyncio.wait_for(client.instance("n1"), 20)
        assert not any(task.done() for task in tasks)
        await end(tasks)
