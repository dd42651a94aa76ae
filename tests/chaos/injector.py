"""Injects the faults of a schedule, each at its time and for its length, several at once."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import aiohttp
from websockets.exceptions import ConnectionClosed

from tests.chaos import hostile_clients
from tests.chaos.availability import Availability
from tests.chaos.cluster import Cluster
from tests.chaos.faulty_receiver import FaultyReceiver
from tests.chaos.managed_process import ManagedProcess
from tests.chaos.recoveries import PREFIX
from tests.chaos.schedule import PROCESSES, Fault
from tests.support.fault_proxy import FaultProxy

CREATE = "POST /gpu/instance/create"
CHANGES = "POST *"
# SHUTDOWN_TIMEOUT, the end of handlers and of the exchange, the release of the lease with the database away, and
# a machine under load.
STOP_SECONDS = 6 + 5 + 5 + 10 + 14.0
# What the provider does late must still be within the time in which we look for it: see CREATE_GRACE in `cluster.py`.
LATEST_PROVIDER = 4.0
START_SECONDS = 3.0  # until a worker that was started works
SHORTEST_NOTICE = 12.0  # more than RECONCILE_INTERVAL, which sees it
FAREWELL = 1012  # the close code of docs/live.md that makes clients reconnect


class FaultInjector:
    def __init__(self, stage: Cluster, receiver: FaultyReceiver, start_cursor: str, *, say: Any) -> None:
        self._stage, self._receiver, self._cursor, self._say = stage, receiver, start_cursor, say
        self._provider: dict[int, dict[str, Any]] = {}
        self.injected: Counter[str] = Counter()
        self.is_enough = asyncio.Event()
        self.wrong_farewells: list[str] = []
        self.farewells = 0
        self.failed: list[str] = []
        self.lost: set[str] = set()
        self.reclaimed = 0
        self.available = Availability()

    async def run(self, faults: list[Fault]) -> None:
        """Inject all faults, or until `is_enough` is set; returns when the last is over and all is repaired."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number, fault in enumerate(faults):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, began + fault.at - time.monotonic())):
                        await self.is_enough.wait()
                if self.is_enough.is_set():
                    break
                self._say(str(fault))
                self.injected[fault.kind] += 1
                tasks.create_task(self._try(number, fault))
        self._stage.mend()
        await self._stage.control("faults", {"faults": []})

    async def _try(self, number: int, fault: Fault) -> None:
        began = time.monotonic()
        try:
            await self._one(number, fault)
        except Exception as error:  # noqa: BLE001 - a fault that can't be carried out must not hide what the others did
            self.failed.append(f"{fault}: {error!r}")
        finally:
            self.available.fault(fault.kind, fault.victim, began, time.monotonic())

    async def _one(self, number: int, fault: Fault) -> None:
        stage = self._stage
        match fault.kind:
            case "kill -9 api" | "kill -9 worker":
                stage.processes[fault.victim].kill()
            case "freeze api" | "freeze worker":
                await stage.processes[fault.victim].freeze(fault.seconds)
            case "SIGTERM worker":
                await stage.processes[fault.victim].stop_in_order(within=STOP_SECONDS)
            case "SIGTERM api":
                await self._stop_api(fault.victim)
            case "database fast restart":
                stage.signal_postgres(signal.SIGINT)
            case "database immediate restart":
                stage.signal_postgres(signal.SIGQUIT)
            case "database kill -9":
                stage.signal_postgres(signal.SIGKILL)
            case "database away for all":
                await self._away_for_all(fault)
            case "database disk full":
                await self._disk_full(fault)
            case "cache kill -9":
                await self._kill_cache(fault)
            case "database network" | "cache network" | "provider network":
                network = stage.networks[fault.victim][fault.kind.removesuffix(" network")]
                await self._bad_network(network, fault)
            case "provider freeze":
                await self._freeze_provider(min(fault.seconds, LATEST_PROVIDER))
            case "provider faults":
                await self._provider_fault(number, fault)
            case "provider long outage":
                seconds = stage.provider_max_wait * (1.2 + 0.6 * fault.size)
                await self._provider_fault(number, replace(fault, how="outage", seconds=seconds))
            case "wrong key worker":
                key = {"another key": "sk_" + "0" * 32, "no key": None}[fault.how]
                seconds = START_SECONDS + fault.seconds
                await stage.processes[fault.victim].run_with({"NOVITA_API_KEY": key}, seconds)
            case "clock jump":
                await self._clock_jump(stage.processes[fault.victim], fault)
            case "receiver trouble":
                await self._receiver.for_a_while(fault.how, fault.seconds)
            case "hostile queries":
                await hostile_clients.hostile_queries(self._url(fault.victim), stage.secrets.stranger, fault.seconds)
            case "socket flood":
                await hostile_clients.socket_flood(self._url(fault.victim), stage.secrets.stranger, fault.seconds)
            case "machines reclaimed":
                await self._reclaim(fault)
            case "slow readers":
                await hostile_clients.slow_readers(
                    self._url(fault.victim), stage.secrets.token, self._cursor, fault.seconds
                )
            case _:
                raise AssertionError(f"there is no such fault: {fault.kind}")

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._stage.ports[name]}/graphql"

    async def _stop_api(self, name: str) -> None:
        """Stop it with a client on a socket, which must get the close code that makes it reconnect."""
        process = self._stage.processes[name]
        try:
            async with hostile_clients.socket_to(self._url(name), self._stage.secrets.token) as socket:
                pid = process.pid
                stopping = asyncio.create_task(process.stop_in_order(within=STOP_SECONDS))
                try:
                    while True:
                        await socket.recv()
                except ConnectionClosed as closed:
                    code = closed.rcvd.code if closed.rcvd else None
                    ended_well = await stopping == 0
                    if code == FAREWELL:
                        self.farewells += 1
                    elif ended_well:
                        self.wrong_farewells.append(f"{name} (pid {pid}) closed a socket with {code}")
        except hostile_clients.GONE:
            await process.stop_in_order(within=STOP_SECONDS)

    async def _away_for_all(self, fault: Fault) -> None:
        networks = [self._stage.networks[name]["database"] for name in PROCESSES]
        for network in networks:
            network.cut()
        await asyncio.sleep(fault.seconds if fault.size < 0.8 else 30.0)
        for network in networks:
            network.mend()

    async def _disk_full(self, fault: Fault) -> None:
        try:
            await asyncio.to_thread(self._stage.fill_disk)
            await asyncio.sleep(fault.seconds)
        finally:
            self._stage.free_disk()

    async def _kill_cache(self, fault: Fault) -> None:
        redis = self._stage.redis
        if redis is None:
            return
        self._stage.redis = None
        with contextlib.suppress(ProcessLookupError):
            redis.kill()
        await redis.wait()
        await asyncio.sleep(fault.seconds)
        await self._stage.start_redis()

    async def _bad_network(self, network: FaultProxy, fault: Fault) -> None:
        match fault.how:
            case "cut":
                network.cut()
            case "reset":
                network.reset()
            case "half-open":
                network.half_open()
            case "silent":
                network.silence()
            case "silent up":
                network.silence(down=False)
            case "silent down":
                network.silence(up=False)
            case "slow":
                network.slow(0.02 + 0.3 * fault.size, jitter=0.2)
            case "narrow":
                network.narrow(2_000 + 50_000 * fault.size)
            case "broken off":
                network.break_after(int(4000 * fault.size), bytes_down=int(8000 * (1 - fault.size)))
            case _:
                raise AssertionError(f"no network is {fault.how}")
        await asyncio.sleep(fault.seconds)
        network.mend()

    async def _freeze_provider(self, seconds: float) -> None:
        simulator = self._stage.simulator
        assert simulator is not None
        os.kill(simulator.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(simulator.pid, signal.SIGCONT)

    async def _provider_fault(self, number: int, fault: Fault) -> None:
        routes = [CREATE] if fault.size < 0.6 else [CHANGES] if fault.size < 0.85 else ["*"]
        form: dict[str, Any] = {"kind": fault.how, "routes": routes, "probability": 0.3 + 0.7 * fault.size}
        match fault.how:
            case "listLag":
                form |= {"routes": [CREATE], "seconds": 5 * fault.size, "hideFromGet": fault.size < 0.5}
            case "latency":
                form |= {"seconds": LATEST_PROVIDER * fault.size, "jitter": 0.2}
            case "rateLimit":
                form |= {"routes": ["*"], "retryAfter": "1"}
            case "outage":
                form |= {"routes": ["*"], "probability": 1.0, "status": 0 if fault.size < 0.3 else 503}
            case "pullFailure" | "spotReclaim":
                form |= {"routes": [CREATE], "times": 2, "seconds": 1.0}
            case "unknownStatus":
                form |= {"routes": ["GET *"], "times": 10}
            case _:
                pass
        self._provider[number] = form
        await self._tell_provider()
        await asyncio.sleep(fault.seconds)
        del self._provider[number]
        await self._tell_provider()

    async def _tell_provider(self) -> None:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            await self._stage.control("faults", {"faults": list(self._provider.values())})

    async def _reclaim(self, fault: Fault) -> None:
        """Of instances that are recovered: all machines are reclaimed after a notice, or one is lost without any."""
        shown = (await self._stage.control("machines"))["machines"]
        mine = [each["id"] for each in shown if each["name"].startswith(PREFIX) and each["status"] == "running"]
        for number, machine in enumerate(mine):
            with contextlib.suppress(aiohttp.ClientResponseError):  # it stops, or will be reclaimed already
                if number == 0 and len(mine) > 2:
                    await self._stage.control("lose", {"instanceId": machine})
                    self.lost.add(machine)
                else:
                    notice = SHORTEST_NOTICE * (1 + fault.size)
                    await self._stage.control("reclaim", {"instanceId": machine, "noticeSeconds": notice})
                    self.reclaimed += 1

    async def _clock_jump(self, process: ManagedProcess, fault: Fault) -> None:
        process.clock.write_text(fault.how)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            process.clock.write_text("0")
