"""Every change of a registry auth, template, network or prewarm is one event, also one that the console made."""

from datetime import timedelta
from typing import Any

import pytest

from server.account.networks import KIND
from server.account.object_rows import record_deleted
from server.enums import Role
from server.queue.kinds import Reconcile
from server.simulator.faults import Fault, FaultKind
from tests.server.account.test_objects import KINDS, Kind, create, delete, every_kind, listed, send
from tests.support.api import Api
from tests.support.waiting import until

EVENTS = "{ projectEvents { nodes { type data { key value } causedBy { id } } } }"
NOUNS = {"registryAuth": "registry_auth"}
UPDATES = {
    "template": ("updateTemplate", {"image": "nginx:1.28"}),
    "network": ("updateNetwork", {"name": "wan"}),
    "prewarm": ("updatePrewarm", {"note": "for the release"}),
}
# A field of the simulator's record that the console would change.
OUTSIDE = {
    "registryAuth": {"username": "other"},
    "template": {"image": "nginx:1.29"},
    "network": {"name": "elsewhere"},
    "prewarm": {"note": "by hand"},
}
changeable = pytest.mark.parametrize("kind", KINDS[1:], ids=[kind.field for kind in KINDS[1:]])


async def events(api: Api, *, token: str | None = None) -> list[dict[str, Any]]:
    async def is_sequenced() -> bool:
        return not await api.world.value("SELECT count(*) FROM outbox")

    await until(is_sequenced)
    nodes = (await api.ask(EVENTS, token=token)).data["projectEvents"]["nodes"]
    return [
        {"type": node["type"], "by": node["causedBy"] and node["causedBy"]["id"]}
        | {pair["key"]: pair["value"] for pair in node["data"]}
        for node in nodes
    ]


async def types(api: Api) -> list[str]:
    return [event["type"].partition(".")[2] for event in await events(api)]


async def reconcile(api: Api) -> None:
    await api.world.enqueue(Reconcile())
    await api.world.work_once()


async def reconcile_after_the_grace(api: Api) -> None:
    """Look twice, so far apart that what is missing counts as gone."""
    await reconcile(api)
    await api.world.execute("UPDATE provider_object SET missing_since = missing_since - interval '61 seconds'")
    await reconcile(api)


def bare(id: str) -> str:
    return id.partition("_")[2]


def change_outside(api: Api, kind: Kind, id: str, **values: Any) -> None:
    world = api.world.simulator.world
    world.put(kind.table, bare(id), {**world.table(kind.table)[bare(id)], **values})


def hold_prewarms(api: Api) -> None:
    """Those that there are do not end by themselves."""
    for id in api.world.simulator.world.table("prewarm"):
        change_outside(api, KINDS[3], f"pre_{id}", ends_at_sim=1e12)


@every_kind
async def test_create_and_delete_are_one_event_each_for_its_project_alone(api: Api, kind: Kind):
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    id = (await create(api, kind, idempotencyKey="k"))[kind.field]["id"]
    await create(api, kind, idempotencyKey="k")
    await create(api, kind, validateOnly=True)
    hold_prewarms(api)
    await reconcile(api)
    assert await delete(api, kind, id) == []
    await reconcile(api)

    noun = NOUNS.get(kind.field, kind.field)
    token = f"tok_{api.caller.token_id.hex}"
    created, deleted = await events(api)
    assert (created["type"], created["id"], created["by"]) == (f"{noun}.created", id, token)
    assert (deleted["type"], deleted["id"], deleted["by"]) == (f"{noun}.deleted", id, token)
    assert created["name"] == deleted["name"] == kind.input.get("name", "as-sgp-2 big:1")
    assert await events(api, token=stranger) == []


@every_kind
@pytest.mark.parametrize("by", ["the caller", "reconcile"])
async def test_a_create_whose_response_was_lost_is_one_event_when_it_is_found(api: Api, kind: Kind, by: str):
    api.world.faults(Fault(FaultKind.LOST_ANSWER, routes=(kind.route,), times=1))
    assert (await send(api, kind, idempotencyKey="k")).error["code"] == "NETWORK_ERROR"
    assert await types(api) == []
    hold_prewarms(api)

    if by == "reconcile":
        await api.world.execute("UPDATE provider_object SET asked_at = asked_at - interval '1 hour'")
        await reconcile(api)
    else:
        await create(api, kind, idempotencyKey="k")

    (event,) = await events(api)
    assert event["type"].endswith(".created")
    assert await delete(api, kind, event["id"]) == []


@changeable
async def test_a_change_of_a_caller_is_one_event_and_no_news_for_reconcile(api: Api, kind: Kind):
    id = (await create(api, kind))[kind.field]["id"]
    hold_prewarms(api)
    await reconcile(api)
    name, input = UPDATES[kind.field]

    document = (
        f"mutation ($input: {name[0].upper() + name[1:]}Input!) {{ {name}(input: $input) {{ errors {{ code }} }} }}"
    )
    assert (await api.ask(document, input={"id": id, **input})).data[name]["errors"] == []
    await reconcile(api)

    assert await types(api) == ["created", "changed"]
    assert (await events(api))[1]["by"] == f"tok_{api.caller.token_id.hex}"
    assert await delete(api, kind, id) == []


@every_kind
async def test_a_change_made_elsewhere_is_one_event_without_a_caller(api: Api, kind: Kind):
    """As if a process had been killed between the provider's response and its own write, too."""
    id = (await create(api, kind))[kind.field]["id"]
    hold_prewarms(api)
    await reconcile(api)
    change_outside(api, kind, id, **OUTSIDE[kind.field])

    await reconcile(api)
    await reconcile(api)

    assert await types(api) == ["created", "changed"]
    changed = (await events(api))[1]
    assert (changed["id"], changed["by"], changed["name"]) == (
        id,
        None,
        OUTSIDE[kind.field].get("name", changed["name"]),
    )
    assert await delete(api, kind, id) == []


@every_kind
async def test_what_is_deleted_elsewhere_is_gone_after_the_grace(api: Api, kind: Kind):
    id = (await create(api, kind, idempotencyKey="k"))[kind.field]["id"]
    hold_prewarms(api)
    await api.world.work_once()  # the watch of prewarmed images looks on its own: not again for 15 s
    api.world.simulator.world.drop(kind.table, bare(id))
    await reconcile(api)
    await api.world.execute("UPDATE provider_object SET missing_since = missing_since + interval '1 hour'")
    await reconcile(api)
    assert await types(api) == ["created"]

    await api.world.execute("UPDATE provider_object SET missing_since = missing_since - interval '1 hour 61 seconds'")
    await reconcile(api)

    assert await types(api) == ["created", "deleted"]
    gone = (await events(api))[1]
    assert (gone["id"], gone["reason"], gone["by"]) == (id, "GONE_AT_PROVIDER", None)
    assert id not in await listed(api, kind)
    assert (await create(api, kind, idempotencyKey="k"))[kind.field] is None


@every_kind
async def test_what_is_seen_again_is_its_projects_again(api: Api, kind: Kind):
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    id = (await create(api, kind))[kind.field]["id"]
    record = api.world.simulator.world.table(kind.table)[bare(id)]
    api.world.simulator.world.drop(kind.table, bare(id))
    await reconcile_after_the_grace(api)

    api.world.simulator.world.put(kind.table, bare(id), record)
    await reconcile(api)
    await reconcile(api)

    assert await types(api) == ["created", "deleted", "changed"]
    assert (await events(api))[2]["reason"] == "SEEN_AGAIN"
    assert id not in await listed(api, kind, token=stranger)
    assert await delete(api, kind, id) == []


async def test_a_changed_value_of_a_templates_variable_is_news_and_not_kept(api: Api):
    template = KINDS[1]
    given = [{"key": "MODE", "value": "slow"}, {"key": "API_TOKEN", "value": "first-secret"}]
    id = (await create(api, template, env=given))["template"]["id"]
    await reconcile(api)
    assert await types(api) == ["created"]

    change_outside(api, template, id, envs=[given[0], {"key": "API_TOKEN", "value": "second-secret"}])
    await reconcile(api)
    await reconcile(api)

    assert await types(api) == ["created", "changed"]
    update = "mutation ($input: UpdateTemplateInput!) { updateTemplate(input: $input) { errors { code } } }"
    third = [given[0], {"key": "API_TOKEN", "value": "third-secret"}]
    assert (await api.ask(update, input={"id": id, "env": third})).data["updateTemplate"]["errors"] == []
    await reconcile(api)
    assert await types(api) == ["created", "changed", "changed"]
    assert [event["by"] is None for event in await events(api)] == [False, True, False]
    kept = str([tuple(row) for row in await api.world.rows("SELECT to_jsonb(t)::text FROM provider_object AS t")])
    assert "secret" not in kept + str(await events(api))
    assert await delete(api, template, id) == []


async def test_when_most_seem_to_be_gone_the_list_is_not_believed(api: Api):
    network = KINDS[2]
    ids = [(await create(api, network, name=f"lan-{number}"))["network"]["id"] for number in range(3)]
    kept = {bare(id): api.world.simulator.world.table("network")[bare(id)] for id in ids}
    for id in kept:
        api.world.simulator.world.drop("network", id)

    await reconcile_after_the_grace(api)

    assert await types(api) == ["created"] * 3
    assert await api.world.value("SELECT count(*) FROM provider_object WHERE missing_since IS NOT NULL") == 0
    for id, record in kept.items():
        api.world.simulator.world.put("network", id, record)
        assert await delete(api, network, f"net_{id}") == []


@pytest.mark.parametrize("has_been_seen", [True, False])
async def test_the_end_of_a_prewarm_is_one_event(api: Api, has_been_seen: bool):
    prewarm = KINDS[3]
    id = (await create(api, prewarm))["prewarm"]["id"]
    hold_prewarms(api)
    if has_been_seen:
        await reconcile(api)
    assert await types(api) == ["created"]

    change_outside(api, prewarm, id, ends_at_sim=0)
    await reconcile(api)
    await reconcile(api)

    assert await types(api) == ["created", "changed"]
    assert (await events(api))[1]["state"] == "Succeeded"
    assert await delete(api, prewarm, id) == []


async def watching(api: Api) -> list[str]:
    rows = await api.world.rows("SELECT status FROM job WHERE kind = 'WATCH_PREWARMS'")
    return [row["status"] for row in rows]


async def look(api: Api) -> None:
    """Let the job that looks for ends run once."""
    await api.world.hurry()
    await api.world.work_once()


async def test_ends_of_prewarms_are_looked_for_by_one_job_until_there_are_none(api: Api):
    prewarm = KINDS[3]
    made = [(await create(api, prewarm, image=f"big:{number}"))["prewarm"]["id"] for number in range(2)]
    hold_prewarms(api)
    api.world.faults(Fault(FaultKind.ERROR, routes=("GET /image/prewarm",), status=400, reason="INVALID", times=1))
    for _ in range(2):
        await look(api)
        assert await watching(api) == ["WAITING"]
    pause = await api.world.value("SELECT run_at - now() FROM job WHERE kind = 'WATCH_PREWARMS'")
    assert timedelta(0) < pause <= timedelta(seconds=15)

    for number, id in enumerate(made):
        change_outside(api, prewarm, id, ends_at_sim=0)
        await look(api)
        assert len(await watching(api)) == 1 - number

    ended = [event for event in await events(api) if event["type"] == "prewarm.changed"]
    assert [(event["id"], event["state"]) for event in ended] == [(id, "Succeeded") for id in made]
    for id in made:
        assert await delete(api, prewarm, id) == []


async def test_reconcile_makes_the_job_again_that_looks_for_the_end_of_a_prewarm(api: Api):
    prewarm = KINDS[3]
    id = (await create(api, prewarm))["prewarm"]["id"]
    hold_prewarms(api)
    await api.world.execute("DELETE FROM job WHERE kind = 'WATCH_PREWARMS'")
    await reconcile(api)
    assert await watching(api) == ["WAITING"]

    assert await delete(api, prewarm, id) == []
    await look(api)
    await reconcile(api)
    assert await watching(api) == []


async def test_of_two_deletes_at_once_one_writes_the_event(api: Api):
    network = KINDS[2]
    id = (await create(api, network))["network"]["id"]
    api.world.simulator.world.drop("network", bare(id))
    account = api.server.runtime.account
    for was_there in (True, False):
        await record_deleted(account.database, KIND, bare(id), by=api.caller, was_there=was_there)

    assert await types(api) == ["created", "deleted"]


async def test_a_change_of_what_was_created_elsewhere_is_an_event_of_the_callers_project(api: Api):
    admin, caller = await api.world.new_token("default", Role.ADMIN)
    network = KINDS[2]
    await api.world.novita.create_network(cluster_id="as-sgp-2", name="theirs")
    (id,) = [key for key, each in api.world.simulator.world.table("network").items() if each["name"] == "theirs"]
    await api.server.runtime.catalog.networks(fresh=True)

    document = "mutation ($input: UpdateNetworkInput!) { updateNetwork(input: $input) { errors { code } } }"
    update = {"id": f"net_{id}", "name": "ours"}
    assert (await api.ask(document, token=admin, input=update)).data["updateNetwork"]["errors"] == []
    assert await delete(api, network, f"net_{id}", token=admin) == []

    found = [(event["type"], event["by"]) for event in await events(api, token=admin)]
    by = f"tok_{caller.token_id.hex}"
    assert found == [("network.changed", by), ("network.deleted", by)]
