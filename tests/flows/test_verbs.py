"""One instance through every operation over the API, and an outage of the provider during each."""

import os
import time
from typing import Any

import pytest

from tests.support.processes import Up, control, up
from tests.support.watcher import STORY, GraphQLClient, story_of

OUTAGE = float(os.environ.get("OUTAGE_SECONDS", "8"))  # `make chaos-outage` takes a minute
UP_AGAIN = ["RUNNING", "HEALTH_CHECKING", "READY"]

pytestmark = pytest.mark.slow


async def asked(caller: GraphQLClient, mutation: str, **fields: Any) -> str:
    """Sends the mutation; returns the operation's id."""
    kind = mutation[0].upper() + mutation[1:]
    document = (
        f"mutation ($input: {kind}Input!) {{ {mutation}(input: $input) "
        "{ operation { id } errors { code message } } }"
    )
    answer = (await caller.ask(document, input=fields))[mutation]
    assert answer["errors"] == []
    return str(answer["operation"]["id"])


async def over(caller: GraphQLClient, operation_id: str) -> dict[str, Any]:
    """Wait for it as the API offers it."""
    document = """query ($id: ID!) { awaitOperation(id: $id, timeout: 20) {
        kind status progress error { code retryable } instance { name status rootfsSizeGb ports { port } } } }"""
    for _ in range(6):
        operation = (await caller.ask(document, id=operation_id))["awaitOperation"]
        if operation["status"] not in ("QUEUED", "RUNNING"):
            return operation
    raise AssertionError(f"it is still {operation['status']}")


async def test_one_instance_goes_through_every_operation(shared_up: Up):
    caller = GraphQLClient(shared_up.graphql_url, shared_up.token)
    async with caller.subscribed() as events:
        id = await caller.create("every-operation")
        await events.until("READY", id)
        for mutation, fields in (
            ("stopInstance", {"id": id}),
            ("startInstance", {"name": "every-operation"}),
            ("restartInstance", {"id": id}),
            ("updateInstance", {"id": id, "name": "renamed", "ports": [{"port": 8080}], "rootfsSizeGb": 80}),
            ("migrateInstance", {"id": id}),
        ):
            operation = await over(caller, await asked(caller, mutation, **fields))
            assert (operation["status"], operation["progress"]) == ("SUCCEEDED", 100)
        assert (operation["instance"]["name"], operation["instance"]["rootfsSizeGb"]) == ("renamed", 80)
        assert operation["instance"]["ports"] == [{"port": 8080}]
        assert (await over(caller, await asked(caller, "deleteInstance", id=id)))["status"] == "SUCCEEDED"
        seen = await events.until("DELETED", id)

    assert story_of(seen, id) == [
        *STORY,
        *("STOPPING", "EXITED"),
        *("STARTING", *UP_AGAIN),
        *("RESTARTING", *UP_AGAIN),
        *("MIGRATING", *UP_AGAIN),
        *("DELETING", "DELETED"),
    ]


@pytest.mark.timeout(300)
async def test_an_outage_of_the_provider_during_each_operation_is_waited_out(home: Any):
    names = ["stopped", "started", "restarted", "updated", "migrated", "deleted"]
    # In proportion to the outage: a tenth of it, or a twentieth. A create without a response is repeated after the
    # deadline, the timeout and the grace period.
    patience = {
        "BREAKER_RECOVERY": f"{OUTAGE / 30:.2f}s",
        "REQUEST_TIMEOUT": f"{max(OUTAGE / 12, 2):.2f}s",
        "REQUEST_DEADLINE": f"{max(OUTAGE / 6, 2):.2f}s",
        "CREATE_GRACE": f"{OUTAGE / 12:.2f}s",
    }
    async with up(home, env=patience) as running:
        caller = GraphQLClient(running.graphql_url, running.token)
        ids = {name: await caller.create(name) for name in names}
        for id in ids.values():
            await caller.becomes(id, "READY")
        await over(caller, await asked(caller, "stopInstance", id=ids["started"]))

        await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "outage", "seconds": OUTAGE}]})
        began = time.monotonic()
        created = await caller.create("created")
        operations = {
            "stopped": await asked(caller, "stopInstance", id=ids["stopped"]),
            "started": await asked(caller, "startInstance", id=ids["started"]),
            "restarted": await asked(caller, "restartInstance", id=ids["restarted"]),
            "updated": await asked(caller, "updateInstance", id=ids["updated"], rootfsSizeGb=80),
            "migrated": await asked(caller, "migrateInstance", id=ids["migrated"]),
            "deleted": await asked(caller, "deleteInstance", id=ids["deleted"]),
        }
        ended = {}
        for name, id in operations.items():
            ended[name] = await over(caller, id)
            assert time.monotonic() - began > OUTAGE
        await caller.becomes(created, "READY", within=120)
        state = await control(running.ready["simulatorUrl"], "state")

    assert {name: (each["status"], each["instance"]["status"]) for name, each in ended.items()} == {
        "stopped": ("SUCCEEDED", "EXITED"),
        "started": ("SUCCEEDED", "READY"),
        "restarted": ("SUCCEEDED", "READY"),
        "updated": ("SUCCEEDED", "READY"),
        "migrated": ("SUCCEEDED", "READY"),
        "deleted": ("SUCCEEDED", "DELETED"),
    }
    assert state["instancesMade"] == len(names) + 1
    assert (state["calls"]["POST /gpu/instance/start"], state["calls"]["POST /gpu/instance/restart"]) == (1, 1)
