"""One token at all of its limits: each limit refuses it, and another project's work is done as if it were alone."""

import asyncio
from typing import Any

from tests.neighbour.noise import Noise
from tests.server.test_settings import another
from tests.support.api import Api
from tests.support.api_server import Server, Socket
from tests.support.waiting import until

LIMITS: dict[str, Any] = {
    "request_rate_limit": 900,
    "live_reads_per_token": 4,
    "operations_per_token": 30,
    "max_pending_creates": 6,
    "max_concurrent_jobs": 1,  # beside one that only creates use, so two creates run at once
    "novita_rate_limit": 600,
}
REFUSALS = (
    "create 200 QUEUE_FULL",
    "create 429 RATE_LIMITED",
    "heartbeat 429 RATE_LIMITED",
    "live 200 RATE_LIMITED",
    "read 429 RATE_LIMITED",
    "watch refused",
    "wrong 200 BAD_REQUEST",
    "wrong 429 RATE_LIMITED",
)
CREATE = """mutation {
  createInstance(input: {name: "mine", productName: "RTX 4090 24GB", image: "nginx"}) {
    instance { id } errors { code } } }"""
STOP = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }"
EVENTS = "subscription { instanceEvents { status instanceId } }"


def missing(noise: Noise) -> list[str]:
    return [each for each in REFUSALS if not noise.counts[each]]


async def seen(events: Socket, status: str) -> None:
    while (await events.next("instanceEvents"))["status"] != status:
        pass


async def changed(server: Server, token: str, document: str, **variables: Any) -> dict[str, Any]:
    (payload,) = (await server.ask(document, token=token, variables=variables)).data.values()
    assert payload["errors"] == []
    return payload


async def test_a_token_at_its_limits_is_refused_and_delays_no_other_project(api: Api):
    noisy, _ = await api.world.new_token("noisy")
    before = {machine.id for machine in api.world.machines()}  # of tests before this one
    async with another(api, **LIMITS) as server:
        noise = Noise(f"http://{server.address}/graphql", noisy, server.http, clients=2, sockets=2, operations=20)
        making = asyncio.create_task(noise.make())
        try:
            await until(lambda: making.done() or not missing(noise))
            assert missing(noise) == []
            async with server.watching(EVENTS, token=api.token) as events:
                made = await changed(server, api.token, CREATE)
                server.runtime.work()
                await seen(events, "READY")
                await changed(server, api.token, STOP, id=made["instance"]["id"])
                await seen(events, "EXITED")
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    names = [machine.name for machine in api.world.machines() if machine.id not in before]
    place = next(number for number, name in enumerate(names) if name.startswith("mine"))
    # It is the second to begin, after one of the six that waited before it. Of two creates that run at once, the
    # provider may get the second first, and one more begins when that has ended.
    assert place < 4
