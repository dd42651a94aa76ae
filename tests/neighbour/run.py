"""Measures a project's create, stop and subscription in quiet and beside a token at all of its limits.

python -m tests.neighbour.run: `pilotlight up` with its default settings and its simulator, rounds in quiet, then as
many beside the noise. Prints medians and their ratio, and what the noisy token got; ends with 1 above a ratio of 1.5.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.support.processes import ROOT, Up, run, up
from tests.support.watcher import GraphQLClient

RATIO_MAX = 1.5
CREATE = """mutation ($name: String!) {
  createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx"}) {
    instance { id } errors { code message } } }"""
STOP = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code message } } }"
DELETE = "mutation ($id: ID!) { deleteInstance(input: {id: $id}) { errors { code message } } }"
EVENTS = "subscription { instanceEvents { type status instanceId } }"
# The simulator's defaults and the server's: nothing of the tests' quick settings.
DEFAULTS = {
    "SIMULATOR_SPEED": "1",
    "JOB_LEASE": "20s",
    "HEALTH_CHECK_DELAY": "2s",
    "INSTANCE_POLL_INTERVAL": "30s",
    "NOVITA_RATE_LIMIT": "100",
}


@dataclass
class Took:
    """Seconds of each round, from the request."""

    accepted: list[float] = field(default_factory=list[float])
    first_event: list[float] = field(default_factory=list[float])
    ready: list[float] = field(default_factory=list[float])
    exited: list[float] = field(default_factory=list[float])

    def medians(self) -> dict[str, float]:
        names = {
            "create, to its acceptance": self.accepted,
            "create, to its first event": self.first_event,
            "create, to READY": self.ready,
            "stop, to EXITED": self.exited,
        }
        return {name: statistics.median(seconds) for name, seconds in names.items()}


async def rounds(client: GraphQLClient, many: int, label: str) -> Took:
    """Create, watch, stop and delete, one instance after the other."""
    took = Took()
    async with aiohttp.ClientSession(headers=client.headers) as http:

        async def send(query: str, **variables: Any) -> dict[str, Any]:
            async with http.post(client.url, json={"query": query, "variables": variables}) as response:
                answer: Any = await response.json()
            (payload,) = answer["data"].values()
            assert not payload["errors"], payload
            return payload

        for number in range(many):
            async with client.subscribed(EVENTS) as events:
                began = time.perf_counter()
                made = (await send(CREATE, name=f"{label}-{number}"))["instance"]["id"]
                took.accepted.append(time.perf_counter() - began)
                await events.next(within=120)
                took.first_event.append(time.perf_counter() - began)
                await events.until("READY", made, within=300)
                took.ready.append(time.perf_counter() - began)
                began = time.perf_counter()
                await send(STOP, id=made)
                await events.until("EXITED", made, within=300)
                took.exited.append(time.perf_counter() - began)
            await send(DELETE, id=made)
    return took


async def new_token(running: Up, project: str) -> str:
    made = await run("token", "create", "bench", "--project", project, "--home", str(running.home))
    assert made.code == 0, made.said
    return made.printed.strip()


async def neighbour(running: Up, many: int, settle: float) -> bool:
    secrets = [await new_token(running, name) for name in ("quiet", "noisy")]
    client = GraphQLClient(running.graphql_url, secrets[0])
    await rounds(client, 1, "warm")
    quiet = await rounds(client, many, "quiet")
    noise = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.neighbour.noise", running.graphql_url,
        env={**os.environ, "TOKEN": secrets[1]}, cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await asyncio.sleep(settle)  # it uses up what may come at once
    noisy = await rounds(client, many, "noisy")
    printed, _ = await asyncio.wait_for(noise.communicate(b"\n"), 60)
    say("| the neighbour's | quiet, s | beside the noise, s | ratio |\n| --- | --- | --- | --- |")
    worst = 0.0
    for (name, before), during in zip(quiet.medians().items(), noisy.medians().values(), strict=True):
        worst = max(worst, during / before)
        say(f"| {name} | {before:.3f} | {during:.3f} | {during / before:.2f} |")
    say("the noisy token: " + ", ".join(f"{count:,} {what}" for what, count in sorted(orjson.loads(printed).items())))
    return worst <= RATIO_MAX


async def main(many: int, settle: float) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        async with up(Path(folder) / "home", env={**DEFAULTS, "LOG_FORMAT": "json"}) as running:
            return await neighbour(running, many, settle)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--settle", type=float, default=20)
    given = options.parse_args()
    sys.exit(0 if asyncio.run(main(given.rounds, given.settle)) else 1)
