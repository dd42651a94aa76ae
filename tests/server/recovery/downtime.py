"""Time without service around a reclaim, by the record of a prober, with real processes.

    python -m tests.server.recovery.downtime

Prints how long an instance did not serve that is started again, and one whose machine is replaced before. The exit code
is 1 if the first took more than 30 s longer than the provider's start, or the second failed one request.
"""

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.processes import control, up
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

NOTICE = 30.0  # seconds; the provider's is an hour
ALLOWED = 30.0
# The notice is seen in time, as it is with an hour of it.
SETTINGS = {"RECONCILE_INTERVAL": "5s", "SIMULATOR_SPEED": "5", "BUILD_PAGES": "false"}
WITHIN = 300.0
CREATE = "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id } errors { code } } }"
READ = "query ($id: ID!) { instance(id: $id) { status novitaId endpoints { address } } }"
POLICIES = {
    "started again": {"allowDataLoss": False},
    "replaced before": {"allowDataLoss": True, "replaceBeforeReclaim": True, "drain": 5},
}


@dataclass
class Record:
    """What a prober of one instance has seen; times are monotonic."""

    id: str
    machine: str
    requests: int = 0
    failed: list[float] = field(default_factory=list[float])
    served: float = 0.0  # the last success
    longest: float = 0.0  # between two successes with failures between them
    start_began: float = 0.0  # when the provider began to start the machine again
    runs: float = 0.0


async def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        async with up(Path(home) / "home", env=SETTINGS) as server, aiohttp.ClientSession() as http:
            api, simulator = GraphQLClient(server.graphql_url, server.token), str(server.ready["simulatorUrl"])
            records = {name: await _ready(api, name, policy) for name, policy in POLICIES.items()}
            tasks = [asyncio.create_task(_probe(http, api, each)) for each in records.values()]
            tasks.append(asyncio.create_task(_watch(simulator, records["started again"])))
            for each in records.values():
                body = {"instanceId": each.machine, "noticeSeconds": NOTICE}
                await control(simulator, "reclaim", body)
            await asyncio.sleep(NOTICE)
            await until(lambda: records["started again"].longest > 0, within=WITHIN)
            await asyncio.sleep(10)  # the drain, and what would come late
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            now = await api.ask(READ, id=records["replaced before"].id)
    return _report(records, was_replaced=now["instance"]["novitaId"] != records["replaced before"].machine)


def _report(records: dict[str, Record], *, was_replaced: bool) -> int:
    first, second = records["started again"], records["replaced before"]
    start = first.runs - first.start_began
    for name, each in records.items():
        sys.stdout.write(f"{name:16} {each.requests:>6} requests {len(each.failed):>5} failed {each.longest:>7.1f} s\n")
    sys.stdout.write(f"the provider's start took {start:.1f} s\n")
    return 0 if was_replaced and not second.failed and start > 0 and first.longest <= start + ALLOWED else 1


async def _ready(api: GraphQLClient, name: str, policy: dict[str, Any]) -> Record:
    wish: dict[str, Any] = {"name": name.replace(" ", "-"), "productName": "RTX 4090 24GB", "image": "nginx"}
    wish |= {"billing": "SPOT", "ports": [{"port": 80}], "recovery": policy}
    created = (await api.ask(CREATE, input=wish))["createInstance"]
    id = created["instance"]["id"]

    async def is_ready() -> bool:
        return (await api.ask(READ, id=id))["instance"]["status"] == "READY"

    await until(is_ready, within=WITHIN)
    return Record(id, (await api.ask(READ, id=id))["instance"]["novitaId"], served=time.monotonic())


async def _probe(http: aiohttp.ClientSession, api: GraphQLClient, record: Record) -> None:
    """Request the endpoint that the instance has now, all the time."""
    while True:
        endpoints = (await api.ask(READ, id=record.id))["instance"]["endpoints"]
        record.requests += 1
        if endpoints and await _serves(http, endpoints[0]["address"]):
            moment = time.monotonic()
            if record.failed and record.failed[-1] > record.served:
                record.longest = max(record.longest, moment - record.served)
            record.served = moment
        else:
            record.failed.append(time.monotonic())
        await asyncio.sleep(0.1)


async def _serves(http: aiohttp.ClientSession, address: str) -> bool:
    try:
        async with http.get(address, timeout=aiohttp.ClientTimeout(5)) as answer:
            return answer.status < 400
    except (TimeoutError, aiohttp.ClientError):
        return False


async def _watch(simulator: str, record: Record) -> None:
    """When the provider begins to start the machine again, and when it runs."""
    was_down = False
    while not record.runs:
        shown = (await control(simulator, "machines"))["machines"]
        status = next(each["status"] for each in shown if each["id"] == record.machine)
        was_down = was_down or status == "exited"
        if was_down and status != "exited" and not record.start_began:
            record.start_began = time.monotonic()
        if record.start_began and status == "running":
            record.runs = time.monotonic()
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
