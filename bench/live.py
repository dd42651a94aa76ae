"""Subscribers by the thousand: memory, connects, fan-out and latency, beside plain Strawberry and a bare broadcast.

python -m bench.live                     1,000 subscribers
python -m bench.live --subscribers 5000  and more (Strawberry as it comes is left at 1,000)
python -m bench.live --cycles 10000      connect, subscribe and go, cleanly and abruptly: what is left behind
python -m bench.live --stalled 20        so many stop reading beside as many that go on: memory, and what both get
"""

import argparse
import asyncio
import gc
import json
import logging
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
import uvloop

from bench.live_client import EVENTS, Subscriber, connect
from server.auth.tokens import create_token, new_secret
from server.clock import new_id, now
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.db.notify import Notifier
from server.db.tables import Instance, Token
from server.enums import InstanceStatus, Role
from server.events.event import EventType
from server.events.outbox import append
from server.instances.events import snapshot_of

KINDS = ("ours", "strawberry", "bare")
SINGLES = 15  # events one by one, for the last receiver
BURST = {"ours": 100, "strawberry": 5, "bare": 100}
LATENCIES = 300


@dataclass
class Child:
    """A server in a process of its own, which tells how it is when asked."""

    kind: str
    process: asyncio.subprocess.Process
    address: str

    async def stats(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        return await self.hear()

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.kind} ended")
        return json.loads(line)


@dataclass
class Result:
    kind: str
    subscribers: int
    connects: float
    kib_each: float
    last_ms: float
    messages: float
    cpu_us: float


class World:
    """The database, a token for the subscribers, and a writer of events."""

    def __init__(self, database: Database, url: str) -> None:
        self.database, self.url = database, url
        self.token = new_secret()
        self.project_id = UUID(int=0)
        self.data: dict[str, Any] = {}
        self.instance_id = new_id()

    async def prepare(self) -> None:
        async with self.database.write() as session:
            token_id = await create_token(session, project="bench", name="bench", role=Role.OPERATOR, secret=self.token)
            self.project_id = (await session.get_one(Token, token_id)).project_id
        moment = now()
        row = Instance(
            id=self.instance_id, project_id=self.project_id, name="bench", version=1, product_name="RTX 4090 24GB",
            gpu_count=1, rootfs_size_gb=60, billing="SPOT", image="nginx:1.27", regions=["AS-SGP-02"],
            status=InstanceStatus.READY, created_at=moment, updated_at=moment, status_since=moment, running_at=moment,
            ready_at=moment, ports=[], labels={}, endpoints=[],
        )  # fmt: skip
        self.data = {"from": "HEALTH_CHECKING", "to": "READY", "instance": snapshot_of(row)}

    async def commit(self) -> UUID:
        async with self.database.write() as session:
            return await append(
                session,
                type=EventType.INSTANCE_READY,
                project_id=self.project_id,
                instance_id=self.instance_id,
                data=self.data,
            )

    async def commit_many(self, count: int) -> None:
        """In one transaction: they become one batch of the log."""
        async with self.database.write() as session:
            for _ in range(count):
                await append(
                    session,
                    type=EventType.INSTANCE_READY,
                    project_id=self.project_id,
                    instance_id=self.instance_id,
                    data=self.data,
                )

    @asynccontextmanager
    async def child(self, kind: str) -> AsyncIterator[Child]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.live_servers", kind, self.url, self.token,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        child = Child(kind, process, "")
        try:
            child.address = (await child.hear())["address"]
            yield child
        finally:
            process.kill()
            await process.wait()


async def main(subscribers: int, cycles: int, stalled: int) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        url = (await stack.enter_async_context(EmbeddedPostgres(home))).url
        await upgrade(url)
        database = Database(url, pool_size=4)
        stack.push_async_callback(database.close)
        signals = Notifier(database)
        signals.start()
        stack.push_async_callback(signals.stop)
        world = World(database, url)
        await world.prepare()
        if cycles:
            return await come_and_go(world, cycles)
        if stalled:
            return await stop_reading(world, stalled)
        latencies = await latency(world)
        results = {}
        for kind in KINDS:
            count = min(subscribers, 1000) if kind == "strawberry" else subscribers
            results[kind] = await fan_out(world, kind, count)
        return verdict(results, latencies)


async def fan_out(
    world: World,
    kind: str,
    count: int,
    *,
    burst: int | None = None,
    singles: int = SINGLES,
    query_of: Callable[[int], str] = lambda _: EVENTS,
) -> Result:
    burst = BURST[kind] if burst is None else burst
    async with world.child(kind) as child:
        # A few first, so that what is made once is not counted.
        for early in await connect(child.address, world.token, 20, is_bare=kind == "bare"):
            early.transport.close()  # pyright: ignore[reportOptionalMemberAccess]
        await asyncio.sleep(0.5)
        before = await child.stats()
        gc.collect()
        gc.freeze()
        began = time.perf_counter()
        subscribers = await connect(child.address, world.token, count, is_bare=kind == "bare", query_of=query_of)
        connects = count / (time.perf_counter() - began)
        idle = await child.stats()
        await world.commit()
        await all_have(subscribers, 1)
        lasts: list[float] = []
        for number in range(singles):
            await world.commit()
            committed = time.perf_counter()
            await all_have(subscribers, number + 2)
            lasts.append(max(subscriber.last_at for subscriber in subscribers) - committed)
        loaded = await child.stats()
        began = time.perf_counter()
        await world.commit_many(burst)
        await all_have(subscribers, 1 + singles + burst)
        took = max(subscriber.last_at for subscriber in subscribers) - began
        after = await child.stats()
        for subscriber in subscribers:
            subscriber.transport.abort()  # pyright: ignore[reportOptionalMemberAccess]
    return Result(
        kind,
        count,
        connects,
        (idle["rss"] - before["rss"]) / count / 1024,
        statistics.median(lasts) * 1000,
        burst * count / took,
        (after["cpu"] - loaded["cpu"]) / (burst * count) * 1e6,
    )


async def all_have(subscribers: list[Subscriber], received: int) -> None:
    deadline = time.monotonic() + 120
    while any(subscriber.received < received for subscriber in subscribers):
        assert time.monotonic() < deadline, "a subscriber did not get every event"
        await asyncio.sleep(0.002)


async def latency(world: World) -> list[float]:
    """One of our subscribers: from a commit in another process to the message."""
    arrived: dict[str, float] = {}

    def note(_: Subscriber, text: bytes) -> None:
        start = text.index(b"evt_") + 4
        arrived[text[start : start + 32].decode()] = time.perf_counter()

    async with world.child("ours") as child:
        await connect(child.address, world.token, 1, on_message=note)
        committed: dict[str, float] = {}
        for number in range(LATENCIES + 20):
            event_id = await world.commit()
            if number >= 20:  # the first ones open connections and prepare statements
                committed[event_id.hex] = time.perf_counter()
            await asyncio.sleep(0.02)
        deadline = time.monotonic() + 20
        while not committed.keys() <= arrived.keys():
            assert time.monotonic() < deadline, "an event did not arrive"
            await asyncio.sleep(0.01)
    return [max(arrived[id] - at, 0.0) * 1000 for id, at in committed.items()]


async def come_and_go(world: World, cycles: int) -> int:
    async with world.child("ours") as child:

        async def some(count: int) -> None:
            for start in range(0, count, 50):
                subscribers = await connect(child.address, world.token, min(50, count - start))
                for number, subscriber in enumerate(subscribers):
                    transport = subscriber.transport
                    assert transport is not None
                    if number % 3 == 0:
                        subscriber.say({"id": subscriber.id, "type": "complete"})
                    if number % 2:
                        transport.abort()
                    else:
                        transport.write(b"\x88\x82" + bytes(4) + b"\x03\xe8")  # a close with 1000
                        transport.close()
            deadline = time.monotonic() + 30
            while (await child.stats())["connections"]:
                assert time.monotonic() < deadline, "a client is still connected"
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.5)  # the task that cleans up connections has run

        await some(2000)
        before = await child.stats()
        began = time.perf_counter()
        await some(cycles)
        took = time.perf_counter() - began
        after = await child.stats()
    print(f"{cycles:,} cycles of connect, subscribe and go, in {took:.0f} s ({cycles / took:.0f} a second)\n")
    for name in ("tasks", "broadcasts", "subscriptions", "connections", "subscribers"):
        print(f"  {name:12} {before[name]:>8} before {after[name]:>8} after")
    print(f"  {'memory':12} {before['rss'] / 2**20:>8.1f} MiB {after['rss'] / 2**20:>10.1f} MiB")
    grown = after["rss"] - before["rss"]
    left = any(after[name] for name in ("broadcasts", "subscriptions", "connections", "subscribers"))
    return print_verdict(
        ("nothing is left behind", not left and after["tasks"] <= before["tasks"]),
        (f"memory grew by {grown / cycles:.0f} bytes a cycle (at most 500)", grown / cycles <= 500),
    )


async def stop_reading(world: World, count: int) -> int:
    """Large events, many more than the buffers of the operating system on the way can hold."""
    events, size = 300, 100_000
    world.data["instance"]["image"] = "x" * size
    async with world.child("ours") as child:
        readers = await connect(child.address, world.token, count)
        stalled = await connect(child.address, world.token, count)
        await world.commit()
        await all_have([*readers, *stalled], 1)
        before = await child.stats()
        for subscriber in stalled:
            subscriber.transport.pause_reading()  # pyright: ignore[reportOptionalMemberAccess]
        highest = before["rss"]
        for number in range(events):
            await world.commit()
            await all_have(readers, number + 2)
            if number % 20 == 0:
                highest = max(highest, (await child.stats())["rss"])
        after = await child.stats()
        held = sum(subscriber.received for subscriber in stalled)
        for subscriber in stalled:
            subscriber.transport.resume_reading()  # pyright: ignore[reportOptionalMemberAccess]
        await all_have(stalled, events + 1)
        await asyncio.sleep(0.5)
        got = {subscriber.received for subscriber in [*readers, *stalled]}
    grown = (max(highest, after["rss"]) - before["rss"]) / 2**20
    unread = count * events * size / 2**20
    print(f"{count} of {2 * count} subscribers stop reading; {events} events of {size // 1000} kB are written\n")
    print(f"  not read           {unread:>8,.0f} MiB (each got {held / count:.0f} of {events + 1} messages)")
    print(f"  memory             {before['rss'] / 2**20:>8.1f} MiB before, {grown:.1f} more at the most\n")
    # Each may hold what its buffer allows and the message that filled it; the ring holds the events themselves.
    allowed = (count * (65_536 + 2 * size) + 2 * events * size) / 2**20
    return print_verdict(
        (f"memory grew by {grown:.0f} MiB (at most {allowed:.0f})", grown <= allowed),
        ("readers got every event at once, and subscribers that resumed reading got all of them once",
         got == {events + 1}),
    )  # fmt: skip


def verdict(results: dict[str, Result], latencies: list[float]) -> int:
    print(f"{'':12}{'subscribed':>11}{'connects/s':>12}{'KiB each':>10}{'last ms':>9}{'messages/s':>12}{'CPU us':>8}")
    for result in results.values():
        print(
            f"{result.kind:12}{result.subscribers:>11,}{result.connects:>12,.0f}{result.kib_each:>10.1f}"
            f"{result.last_ms:>9.1f}{result.messages:>12,.0f}{result.cpu_us:>8.1f}"
        )
    cuts = statistics.quantiles(latencies, n=100)
    print(f"\ncommit to subscriber, another process writing: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms\n")
    ours, bare, strawberry = results["ours"], results["bare"], results["strawberry"]
    return print_verdict(
        (f"messages/s are {ours.messages / bare.messages:.2f} of the bare broadcast (at least 0.7)",
         ours.messages >= 0.7 * bare.messages),
        (f"messages/s are {ours.messages / strawberry.messages:.1f} times Strawberry as it comes", True),
        (f"last of {ours.subscribers:,} after {ours.last_ms / bare.last_ms:.2f} times the bare broadcast (at most 2)",
         ours.last_ms <= 2 * bare.last_ms),
        (f"{ours.kib_each:.1f} KiB for each idle subscription (at most 35)", ours.kib_each <= 35),
        (f"commit to subscriber p50 {cuts[49]:.1f} ms (below 15), p99 {cuts[98]:.1f} ms (below 50)",
         cuts[49] < 15 and cuts[98] < 50),
    )  # fmt: skip


def print_verdict(*lines: tuple[str, bool]) -> int:
    for words, is_so in lines:
        print(f"  {'pass' if is_so else 'FAIL'}  {words}")
    return 0 if all(is_so for _, is_so in lines) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument("--stalled", type=int, default=0)
    given = parser.parse_args()
    sys.exit(uvloop.run(main(given.subscribers, given.cycles, given.stalled)))
