"""A token that does everything as often as it can, from a process of its own until its input ends.

python -m tests.neighbour.noise URL, with the token in TOKEN
"""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
import orjson

from server.enums import InstanceStatus

CREATE = """mutation ($name: String!) {
  createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx", lifetime: {heartbeat: 3600}}) {
    instance { id } errors { code } } }"""
READ = "{ instances(first: 100) { nodes { id name status version } } }"
HEARTBEAT = "mutation ($id: ID!) { heartbeat(input: {id: $id}) { errors { code } } }"
LIVE = (
    "query ($id: ID!) { sshAccess(instanceId: $id) { host } }",
    "query ($id: ID!) { instanceLog(instanceId: $id) { text } }",
    "query ($id: ID!) { instanceMetrics(instanceId: $id) { cpu { percent } } }",
    "mutation { syncFleet { errors { code } } }",
)
STATISTICS = "subscription ($filter: InstanceFilter) { fleetStats(filter: $filter) { total } }"
WATCH = "subscription ($filter: InstanceEventFilter) { instanceEvents(filter: $filter) { id type status instanceId } }"
STATUSES = [each.value for each in InstanceStatus]
WRONG = ("{ instances(first: ", "{ nothing }", "{ instances(first: 5000) { nodes { id } } }", "query ($id: ID) { x }")


@dataclass
class Noise:
    """Counts answers by what was asked and how it ended."""

    url: str
    token: str
    http: aiohttp.ClientSession
    clients: int = 5  # of each kind
    sockets: int = 50
    operations: int = 100  # per socket
    counts: Counter[str] = field(default_factory=Counter[str])
    ids: list[str] = field(default_factory=list[str])

    async def ask(self, what: str, query: str, **variables: Any) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        body = orjson.dumps({"query": query, "variables": variables})
        async with self.http.post(self.url, data=body, headers=headers) as response:
            answer: dict[str, Any] = orjson.loads(await response.read())
        errors = answer.get("errors") or []
        payloads = [each for each in (answer.get("data") or {}).values() if isinstance(each, dict)]
        codes = [each["extensions"]["code"] for each in errors]
        codes += [each["code"] for payload in payloads for each in payload.get("errors") or []]
        self.counts[f"{what} {response.status} {codes[0] if codes else 'ok'}"] += 1
        return answer.get("data") or {}

    async def create(self) -> None:
        data = await self.ask("create", CREATE, name=f"noisy-{uuid4().hex[:12]}")
        made = (data.get("createInstance") or {}).get("instance")
        if made:
            self.ids.append(made["id"])

    async def read(self) -> None:
        await self.ask("read", READ)

    async def live(self) -> None:
        for document in LIVE:
            known = {"id": self.ids[0]} if "$id" in document else {}
            await self.ask("live", document, **known)

    async def heartbeat(self) -> None:
        await self.ask("heartbeat", HEARTBEAT, id=self.ids[0])

    async def wrong(self) -> None:
        for document in WRONG:
            await self.ask("wrong", document)

    async def watch(self) -> None:
        """One socket with all the operations that it may have, and read as fast as possible."""
        async with self.http.ws_connect(self.url.replace("http", "ws", 1), protocols=["graphql-transport-ws"]) as wire:
            await wire.send_json({"type": "connection_init", "payload": {"Authorization": f"Bearer {self.token}"}})
            for number in range(self.operations):
                # Every second one is equal to no other, so that the server executes it on its own; half of those
                # are read from the database once a second.
                statuses = random.sample(STATUSES, len(STATUSES)) if number % 2 else STATUSES
                document = STATISTICS if number % 4 == 1 else WATCH
                payload = {"query": document, "variables": {"filter": {"statuses": statuses}}}
                await wire.send_str(orjson.dumps({"id": str(number), "type": "subscribe", "payload": payload}).decode())
            self.counts["watch opened"] += self.operations
            async for message in wire:
                is_refusal = isinstance(message.data, str) and '"type":"error"' in message.data
                self.counts["watch refused" if is_refusal else "watch received"] += 1
        self.counts["watch closed"] += 1

    async def make(self) -> None:
        """All of it, without a pause, until it is cancelled."""
        while not self.ids:
            await self.create()
        doers: list[Callable[[], Awaitable[None]]] = [self.create, self.read, self.live, self.heartbeat, self.wrong]
        crowd = [each for each in doers for _ in range(self.clients)] + [self.watch] * self.sockets
        async with asyncio.TaskGroup() as group:
            for each in crowd:
                group.create_task(self._again(each))

    async def _again(self, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await act()
            except aiohttp.ClientError:
                self.counts["cut off"] += 1
                await asyncio.sleep(0.1)


async def main(url: str) -> None:
    os.nice(10)  # its clients have machines of their own
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        noise = Noise(url, os.environ["TOKEN"], http)
        making = asyncio.create_task(noise.make())
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        await asyncio.wait([making, ended], return_when=asyncio.FIRST_COMPLETED)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)
    sys.stdout.write(orjson.dumps(noise.counts).decode() + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
