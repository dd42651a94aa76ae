"""One instance through every verb, as a caller of a running Pilotlight sees it; and the provider away in the middle."""

from typing import Any

import pytest

from tests.flows.watcher import STORY, Caller, story_of
from tests.processes import Up, control, up

UP_AGAIN = ["RUNNING", "HEALTH_CHECKING", "READY"]

pytestmark = pytest.mark.slow


async def asked(caller: Caller, mutation: str, **fields: Any) -> str:
    """Have a verb accepted; gives the operation's id."""
    kind = mutation[0].upper() + mutation[1:]
    document = (
        f"mutation ($input: {kind}Input!) {{ {mutation}(input: $input) "
        "{ operation { id } errors { code message } } }"
    )
    answer = (await caller.ask(document, input=fields))[mutation]
    assert answer["errors"] == []
    return str(answer["operation"]["id"])


async def over(caller: Caller, operation_id: str) -> dict[str, Any]:
    """Wait for it as the API offers it."""
    document = """query ($id: ID!) { awaitOperation(id: $id, timeoutSeconds: 20) {
        kind status progress error { code retryable } instance { name status rootfsSizeGb ports { port } } } }"""
    for _ in range(6):
        operation = (await caller.ask(document, id=operation_id))["awaitOperation"]
        if operation["status"] not in ("QUEUED", "RUNNING"):
            return operation
    raise AssertionError(f"it is still {operation['status']}")


async def test_one_instance_goes_through_every_verb(shared_up: Up):
    caller = Caller(shared_up.graphql_url, shared_up.token)
    async with caller.subscribed() as events:
        id = await caller.create("every-verb")
        await events.until("READY", id)
        for mutation, fields in (
            ("stopInstance", {"id": id}),
            ("startInstance", {"name": "every-verb"}),
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


async def test_a_provider_that_is_away_in_the_middle_of_a_verb_is_waited_for(home: Any):
    async with up(home, env={"BREAKER_RECOVERY": "1s"}) as running:
        caller = Caller(running.graphql_url, running.token)
        id = await caller.create("patient")
        await caller.becomes(id, "READY")
        for mutation, status in (("stopInstance", "EXITED"), ("startInstance", "READY"), ("restartInstance", "READY")):
            await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "outage", "seconds": 2}]})
            operation = await over(caller, await asked(caller, mutation, id=id))
            assert (operation["status"], operation["instance"]["status"]) == ("SUCCEEDED", status)
        state = await control(running.ready["simulatorUrl"], "state")

    assert state["instancesMade"] == 1
    assert (state["calls"]["POST /gpu/instance/start"], state["calls"]["POST /gpu/instance/restart"]) == (1, 1)
