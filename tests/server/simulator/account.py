"""A client of a simulated provider's account, with control of its clock."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from server.simulator.clock import SimulatedClock
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator

PREFIX = "/gpu-instance/openapi/v1"
START = 1_760_000_000.0


class HandTime:
    """Time that moves only when the test moves it."""

    def __init__(self) -> None:
        self.passed = 0.0

    def clock(self, speed: float = 1.0) -> SimulatedClock:
        return SimulatedClock(speed, monotonic=lambda: self.passed, wall=lambda: START + self.passed)


class Account:
    """Plain HTTP requests, so that tests see what any client sees."""

    def __init__(self, simulator: Simulator, session: aiohttp.ClientSession, time: HandTime) -> None:
        self.simulator = simulator
        self.session = session
        self.time = time

    async def get(self, path: str, **query: str | int) -> tuple[int, Any]:
        async with self.session.get(self.simulator.url + PREFIX + path, params=query) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, **body: object) -> tuple[int, Any]:
        async with self.session.post(self.simulator.url + PREFIX + path, json=body) as answer:
            return answer.status, await answer.json()

    async def control(self, method: str, path: str, **body: object) -> Any:
        async with self.session.request(method, self.simulator.url + "/control" + path, json=body) as answer:
            return await answer.json()

    async def faults(self, *faults: dict[str, object]) -> None:
        shown = await self.control("POST", "/faults", faults=list(faults))
        assert len(shown["faults"]) == len(faults)

    async def create(self, **changes: object) -> str:
        status, answer = await self.post("/gpu/instance/create", **creation(**changes))
        assert status == 200, answer
        return answer["id"]

    async def running(self, **changes: object) -> str:
        """A new instance, advanced until it runs; it needs less than 12 simulated seconds."""
        instance_id = await self.create(**changes)
        self.time.passed += 12
        assert await self.status(instance_id) == "running"
        return instance_id

    async def instance(self, instance_id: str) -> dict[str, Any]:
        status, answer = await self.get("/gpu/instance", instanceId=instance_id)
        assert status == 200, answer
        return answer

    async def status(self, instance_id: str) -> str:
        return (await self.instance(instance_id))["status"]

    async def statuses_until(self, instance_id: str, end: str, *, within: float = 30) -> list[str]:
        """All statuses, polled every twentieth of a simulated second."""
        seen = [await self.status(instance_id)]
        for _ in range(int(within * 20)):
            if seen[-1] == end:
                return seen
            self.time.passed += 0.05
            now = await self.status(instance_id)
            if now != seen[-1]:
                seen.append(now)
        raise AssertionError(f"never {end}: {seen}")


def creation(**changes: object) -> dict[str, object]:
    body: dict[str, object] = {
        "name": "trainer-1",
        "productId": "4090.16c62g",
        "gpuNum": 1,
        "rootfsSize": 60,
        "imageUrl": "ubuntu:22.04",
        "kind": "gpu",
        "clusterId": "us-ca-6",
        "ports": "8888/http,22/tcp",
    }
    body.update(changes)
    return {name: value for name, value in body.items() if value is not None}


OpenAccount = Callable[..., Any]


@asynccontextmanager
async def open_account(options: SimulatorOptions, time: HandTime | None = None) -> AsyncIterator[Account]:
    hand = time or HandTime()
    simulator = Simulator(options, clock=hand.clock())
    headers = {"Authorization": f"Bearer {simulator.api_key}"}
    async with simulator, aiohttp.ClientSession(headers=headers) as session:
        yield Account(simulator, session, hand)
