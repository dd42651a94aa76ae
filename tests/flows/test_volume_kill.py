"""kill -9 of every process while a volume is created or deleted: the next start finishes it, once."""

from typing import Any

import pytest

from tests.flows.test_kill import Restarts, restarts
from tests.support.processes import Up, control, up
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

__all__ = ["restarts"]

CREATE = (
    'mutation { createVolume(input: {name: "v", region: "US-CA-06", sizeGb: 10}) { volume { id } errors { code } } }'
)
DELETE = "mutation ($id: ID!) { deleteVolume(input: {id: $id}) { errors { code } } }"
READ = "query ($id: ID!) { node(id: $id) { ... on Volume { status novitaId } } }"
# A worker that takes over waits for these; short ones keep the proportions.
QUICK = {
    "JOB_LEASE": "2s",
    "REQUEST_TIMEOUT": "1s",
    "REQUEST_DEADLINE": "2s",
    "CREATE_GRACE": "1s",
    "GONE_GRACE": "1s",
}


def caller_of(running: Up) -> GraphQLClient:
    return GraphQLClient(running.graphql_url, running.token)


async def becomes(running: Up, id: str, status: str | None) -> None:
    async def is_so() -> bool:
        volume = (await caller_of(running).ask(READ, id=id))["node"]
        return (None if volume is None else volume["status"]) == status

    await until(is_so, within=60)


async def fault(restarts: Restarts, kind: str, route: str) -> None:
    faults = [{"kind": kind, "routes": [f"POST /networkstorage/{route}"], "times": 1}]
    await control(restarts.simulator_url, "faults", {"faults": faults})


async def calls(restarts: Restarts, route: str, many: int) -> None:
    async def were_made() -> bool:
        state = await control(restarts.simulator_url, "state")
        return state["calls"].get(f"POST /networkstorage/{route}", 0) >= many

    await until(were_made, within=60)


async def volumes(restarts: Restarts) -> list[Any]:
    return (await control(restarts.simulator_url, "volumes"))["volumes"]


@pytest.mark.parametrize("kind", ["hang", "hangAfter"])
async def test_a_create_and_a_delete_survive_a_kill_with_the_call_in_flight(restarts: Restarts, kind: str):
    env = {**restarts.settings, **QUICK}
    await fault(restarts, kind, "create")
    async with up(restarts.home, env=env) as running:
        id = (await caller_of(running).ask(CREATE))["createVolume"]["volume"]["id"]
        await calls(restarts, "create", 1)
        await running.kill_tree()
    assert len(await volumes(restarts)) == (1 if kind == "hangAfter" else 0)

    async with up(restarts.home, env=env) as running:
        await becomes(running, id, "AVAILABLE")
        assert len(await volumes(restarts)) == 1
        await fault(restarts, kind, "delete")
        assert (await caller_of(running).ask(DELETE, id=id))["deleteVolume"]["errors"] == []
        await calls(restarts, "delete", 1)
        await running.kill_tree()

    async with up(restarts.home, env=env) as running:
        await becomes(running, id, None)
    assert await volumes(restarts) == []
    assert (await control(restarts.simulator_url, "state"))["volumesMade"] == 1
