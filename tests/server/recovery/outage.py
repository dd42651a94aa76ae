"""An outage of the provider, as long as it is said, with real processes: nothing is recovered until it is over.

    python -m tests.server.recovery.outage [MINUTES]

While the provider can't be read, one spot machine is reclaimed and one is lost. The exit code is 1 if a recovery began
in that time, or if afterwards another machine than these two was recovered, or one of them was not.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.processes import control, made, up
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

NAMES = ("reclaimed", "lost", "kept-1", "kept-2", "kept-3", "kept-4")
SETTINGS = {"RECONCILE_INTERVAL": "5s", "SIMULATOR_SPEED": "5", "BUILD_PAGES": "false"}
# It answers 503, then it closes the line.
OUTAGES = ({"kind": "outage"}, {"kind": "outage", "status": 0})
WITHIN = 600.0
CREATE = "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id } errors { code } } }"
READ = """{ instances(first: 10) { nodes {
  name status novitaId recovery { incident { trigger } } operations(first: 10) { reason status }
} } }"""
Shown = dict[str, dict[str, Any]]


async def main(minutes: float) -> int:
    with tempfile.TemporaryDirectory() as home:
        async with up(Path(home) / "home", env=SETTINGS) as server:
            api, simulator = GraphQLClient(server.graphql_url, server.token), str(server.ready["simulatorUrl"])
            before = await _ready(api)
            began_early, refused = await _outage(api, simulator, before, minutes * 60)
            sys.stdout.write(f"{minutes:g} minutes: {refused} calls not answered, {began_early} recoveries began\n")
            await control(simulator, "faults", {"faults": []})
            cleared = time.monotonic()

            async def are_back() -> bool:
                now = await _read(api)
                return all(_recovered(now[name]) for name in NAMES[:2]) and _are_ready(now)

            await until(are_back, within=WITHIN, pause=1)
            sys.stdout.write(f"both READY again {time.monotonic() - cleared:.0f} s after the outage\n")
            await asyncio.sleep(90)  # what would come late: longer than GONE_GRACE
            after, machines = await _read(api), await made(simulator)
    recovered = [name for name, each in after.items() if _recoveries(each)]
    moved = [name for name, each in after.items() if each["novitaId"] != before[name]["novitaId"]]
    sys.stdout.write(f"recovered: {recovered}; on another machine: {moved}; machines made: {machines}\n")
    right = sorted(recovered) == ["lost", "reclaimed"] and moved == ["lost"] and machines == len(NAMES) + 1
    return 0 if began_early == 0 and refused and right and _are_ready(after) else 1


async def _outage(api: GraphQLClient, simulator: str, before: Shown, seconds: float) -> tuple[int, int]:
    """How many recoveries began in it, and how many calls of the provider had no answer."""
    began, refused = 0, 0
    for outage in OUTAGES:
        await control(simulator, "faults", {"faults": [outage]})
        if outage is OUTAGES[0]:
            await control(simulator, "reclaim", {"instanceId": before["reclaimed"]["novitaId"], "noticeSeconds": 0})
            await control(simulator, "lose", {"instanceId": before["lost"]["novitaId"]})
        end = time.monotonic() + seconds / len(OUTAGES)
        while time.monotonic() < end:
            await asyncio.sleep(5)
            now = await _read(api)
            began = max(
                began, sum(len(_recoveries(each)) + bool(each["recovery"]["incident"]) for each in now.values())
            )
        refused += sum(each["struck"] for each in (await control(simulator, "faults"))["faults"])
    return began, refused


async def _ready(api: GraphQLClient) -> Shown:
    for name in NAMES:
        wish: dict[str, Any] = {"name": name, "productName": "RTX 4090 24GB", "image": "nginx", "billing": "SPOT"}
        wish |= {"ports": [{"port": 80}], "recovery": {"allowDataLoss": True}}
        answer = (await api.ask(CREATE, input=wish))["createInstance"]
        assert answer["errors"] == [], answer

    async def are_ready() -> bool:
        return _are_ready(await _read(api))

    await until(are_ready, within=WITHIN, pause=1)
    return await _read(api)


async def _read(api: GraphQLClient) -> Shown:
    return {each["name"]: each for each in (await api.ask(READ))["instances"]["nodes"]}


def _are_ready(shown: Shown) -> bool:
    return all(each["status"] == "READY" for each in shown.values())


def _recoveries(shown: dict[str, Any]) -> list[str]:
    return [each["status"] for each in shown["operations"] if each["reason"] == "RECOVERY"]


def _recovered(shown: dict[str, Any]) -> bool:
    return "SUCCEEDED" in _recoveries(shown)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float((sys.argv[1:] or ["30"])[0]))))
