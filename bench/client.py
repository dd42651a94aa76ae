"""1,000 concurrent gets through the client, limits off, against bare aiohttp in the same run.

    python -m bench.client

The server is the smallest that can be, in a process of its own, so that the two clients are what is measured. Bare
aiohttp reads the body and parses the JSON; our client does the same and everything else that it does: slots, breaker,
typed value, a log line that is filtered out. Rounds alternate. The verdict is on gets per second of the client's own
processor time, which is what limits it, because the clock on the wall also counts whatever else the machine does; on a
machine that does nothing else the two agree, and both are printed.
"""

import asyncio
import gc
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

import aiohttp
import orjson
import structlog
import uvloop
from pydantic import SecretStr

from server.novita.client import NovitaClient
from server.novita.transport.request import PREFIX

GETS = 1_000
ROUNDS = 21
WANTED = 0.7

INSTANCE = {
    "id": "3560b7fec915bbf9",
    "name": "trainer-1",
    "clusterId": "us-ca-6",
    "clusterName": "US-CA-06 (California)",
    "status": "running",
    "imageUrl": "ubuntu:22.04",
    "imageAuthId": "",
    "command": "",
    "entrypoint": "",
    "cpuNum": "16",
    "memory": "62",
    "gpuNum": "1",
    "portMappings": [
        {"port": 8888, "type": "http", "endpoint": "https://3560b7fec915bbf9-8888.us-ca-6.example.test"},
        {"port": 22, "type": "tcp", "endpoint": "proxy.us-ca-6.example.test:32787"},
    ],
    "productId": "4090.16c62g",
    "productName": "RTX 4090 24GB",
    "rootfsSize": 60,
    "volumeMounts": [{"type": "network", "size": "100", "id": "b1c9", "mountPath": "/network"}],
    "statusError": {"state": "", "message": ""},
    "envs": [{"key": "A", "value": "1"}],
    "tools": [],
    "kind": "gpu",
    "billingMode": "spot",
    "endTime": "-1",
    "spotStatus": "running",
    "spotReclaimTime": "0",
    "createdAt": "1760000000",
    "lastStartedAt": "1760000060",
    "lastStoppedAt": "0",
    "useTime": "340",
    "network": {"id": "", "ip": ""},
    "connectComponentSSH": {"sshCommand": "ssh -p 32787 root@proxy", "password": "-", "isRunning": True},
    "connectComponentWebTerminal": {"address": "", "username": "", "password": "", "isRunning": False},
    "connectComponentJupyter": {"port": 8888, "address": "https://j.example.test", "isRunning": True},
    "connectComponentLog": {"systemLogAddress": "https://l", "instanceLogAddress": "https://l", "isRunning": True},
    "node": {"maxRootfsSize": 6144},
    "jobs": [],
    "freeStorageSize": 60,
    "keepDataDay": 7,
    "instancePrice": "17500",
}


class Rate(NamedTuple):
    cpu: float
    wall: float


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    server = subprocess.Popen([sys.executable, "-m", "bench.client", "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        return 0 if uvloop.run(compare(f"http://127.0.0.1:{server.stdout.readline().strip()}")) else 1
    finally:
        server.kill()
        server.wait()


async def compare(url: str) -> bool:
    client = NovitaClient(
        base_url=url, api_key=SecretStr("sk_bench"), rate_limit_per_minute=0, breaker_threshold=5, slots_per_route=GETS
    )
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={"Authorization": "Bearer sk_bench", "Content-Type": "application/json"},
    )
    async with client, session:
        return await _alternate(url, client, session)


async def _alternate(url: str, client: NovitaClient, session: aiohttp.ClientSession) -> bool:
    target = f"{url}{PREFIX}/gpu/instance"

    async def bare() -> None:
        async with session.get(target, params={"instanceId": "n1"}) as response:
            orjson.loads(await response.read())

    async def ours() -> None:
        await client.instance("n1")

    rates: dict[str, list[Rate]] = {"bare aiohttp": [], "our client": []}
    for number in range(ROUNDS + 1):
        order = [("bare aiohttp", bare), ("our client", ours)]
        for name, get in order if number % 2 else reversed(order):
            rate = await _rate(get)
            if number:  # the first round opens the connections
                rates[name].append(rate)
    cpu = {name: statistics.median(each.cpu for each in measured) for name, measured in rates.items()}
    wall = {name: statistics.median(each.wall for each in measured) for name, measured in rates.items()}
    for name in rates:
        print(f"{name:>14}: {cpu[name]:7,.0f} gets per processor second, {wall[name]:7,.0f} per second on the wall")
    ratio, on_the_wall = (each["our client"] / each["bare aiohttp"] for each in (cpu, wall))
    verdict = "PASS" if ratio >= WANTED else "FAIL"
    print(
        f"{'ratio':>14}: {ratio:7.2f} ({on_the_wall:.2f} on the wall), medians of {ROUNDS} rounds of {GETS:,} at once"
    )
    print(f"{verdict:>14}: at least {WANTED} is wanted")
    return ratio >= WANTED


async def _rate(get: Callable[[], Awaitable[None]]) -> Rate:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[get() for _ in range(GETS)])
    return Rate(GETS / (time.process_time() - cpu), GETS / (time.perf_counter() - wall))


class Server(asyncio.Protocol):
    """Answers every request with the same instance; reads nothing but the end of a head."""

    BODY = orjson.dumps(INSTANCE)
    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its ancestry
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *heads, self._rest = (self._rest + data).split(b"\r\n\r\n")
        self._transport.write(self.ANSWER * len(heads))


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        uvloop.run(serve())
    else:
        sys.exit(main())
