"""A token with `ownInstancesOnly` does not see the instances of other tokens, in any root field of the schema.

Fields come from the schema, so that a new one is tried too; `test_permissions.py` has arguments for each.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from schema import ids
from server.db.database import Database
from server.db.notify import Notifier
from server.enums import InstanceStatus, Role
from tests.schema.mutations.test_validate_only import TRIALS
from tests.schema.test_permissions import (
    MUTATION_TABLE,
    MUTATIONS,
    QUERIES,
    QUERY_TABLE,
    SUBSCRIPTION_TABLE,
    SUBSCRIPTIONS,
    Least,
    Marks,
    _comparable,
    _rows,
    _unknown,
    document,
)
from tests.support.api import Api
from tests.support.api_server import NO_LIMITS, Answer, serving
from tests.support.databases import DatabaseMaker
from tests.support.seed import Things, make_things
from tests.support.world import World, a_simulator

LARGE = {**NO_LIMITS, "query_max_tokens": 10_000, "query_max_cost": 10**8, "query_max_fields": 10_000}
CREATE_TOKEN = """mutation ($input: CreateTokenInput!) { createToken(input: $input) {
    secret token { id limits { ownInstancesOnly } } errors { code } } }"""
# What `make_things` has made that is an instance of another token, or is about one.
HIDDEN = (
    "ready",
    "exited",
    "busy",
    "failed",
    "operation",
    "failed_operation",
    "job",
    "sending_job",
    "failed_job",
    "providerJob",
    "delivery_of_instance",
    "delivery_about_instance",
    "event",
    "budget",
)


@dataclass(frozen=True)
class Agent:
    """The token, and the instance that it has; `things` are of other tokens of its project."""

    api: Api
    things: Things
    token: str
    token_id: str
    mine: str

    async def ask(self, asked: str, **variables: Any) -> Answer:
        return await self.api.server.ask(asked, token=self.token, variables=variables)


@pytest.fixture(scope="module")
async def agent(new_database: DatabaseMaker) -> AsyncIterator[Agent]:
    url = await new_database.migrated()
    database = Database(url)
    signals = Notifier(database)
    signals.start()
    async with a_simulator(stock_factor=1000) as simulator, serving(url, simulator, **LARGE) as server:
        world = World(database, signals, simulator)
        await world.open()
        operator, world.caller = await world.new_token("team", Role.OPERATOR)
        api = Api(server, world, operator, world.caller)
        things = await make_more(api, await make_things(api))
        admin, _ = await world.new_token("team", Role.ADMIN)
        wish = {"name": "agent", "limits": {"ownInstancesOnly": True}}
        made = (await api.ask(CREATE_TOKEN, token=admin, input=wish)).data["createToken"]
        assert (made["errors"], made["token"]["limits"]) == ([], {"ownInstancesOnly": True})
        mine = (await Api(server, world, made["secret"], world.caller).create(name="mine"))["instance"]["id"]
        yield Agent(api, things, made["secret"], made["token"]["id"], mine)
        await world.close()
    await signals.stop()
    await database.close()


async def make_more(api: Api, things: Things) -> Things:
    """Deliveries, an event, costs and a mounted volume of an instance that the agent does not see."""
    world = api.world
    copied = """INSERT INTO delivery OVERRIDING USER VALUE
                SELECT (jsonb_populate_record(one, $2::jsonb)).* FROM delivery AS one
                WHERE id = $1 RETURNING id"""
    ready, sample = _uuid(things.ready), _uuid(things.delivery)
    own, about = ({"id": str(uuid4())} | more for more in ({"instance_id": str(ready)}, {"subject_id": str(ready)}))
    about["project_webhook_id"] = str(_uuid(things.webhook))
    deliveries = [
        ids.format_id(ids.DELIVERY, await world.value(copied, sample, orjson.dumps(row).decode()))
        for row in (own, about)
    ]
    await world.execute(
        """INSERT INTO cost_entry (project_id, instance_id, machine, token_id, labels, price_e5, product_name, region,
                                   run_began_at, began_at)
           VALUES ($1, $2, 'm1', $3, '{}', 100000, 'RTX', 'X', now(), now() - interval '1 hour')""",
        api.caller.project_id,
        ready,
        api.caller.token_id,
    )
    await world.execute(
        "INSERT INTO volume_attachment (volume_id, instance_id, is_exclusive) VALUES ($1, $2, false)",
        _uuid(things.volume),
        ready,
    )
    event = (await api.ask("{ events(first: 1) { nodes { id } } }")).data["events"]["nodes"][0]["id"]
    made = {"delivery_of_instance": deliveries[0], "delivery_about_instance": deliveries[1], "event": event}
    return Things(things.token, things.made | made | {"project": ids.format_id(ids.PROJECT, api.caller.project_id)})


def _uuid(id: str) -> UUID:
    return UUID(id.partition("_")[2])


def names_hidden(name: str) -> bool:
    return any(f"<{thing}>" in repr(TRIALS[name][0](Marks("", {}))) for thing in HIDDEN)


ARGUMENTS: dict[str, dict[str, Any]] = {"events": {}, "jobs": {}, "operations": {}, "webhookDeliveries": {}}
ARGUMENTS |= {"instances": {}, "providerJobs": {}}


@pytest.mark.parametrize("name", sorted(name for name in QUERIES if QUERY_TABLE[name].least <= Least.OPERATOR))
async def test_no_query_shows_what_belongs_to_another_token(agent: Agent, name: str):
    row, unreal = QUERY_TABLE[name], _unknown(agent.things)
    given = [row.given(agent.things), *([ARGUMENTS[name]] if name in ARGUMENTS else [])]
    for variables in given:
        answer = await agent.ask(document("query", name, QUERIES[name], variables, depth=2), **variables)
        assert "LIMIT_EXCEEDED" not in repr(answer.body)
        text = orjson.dumps(answer.body.get("data")).decode()
        seen = [thing for thing in HIDDEN if agent.things.made[thing] in text]
        assert seen == []
        assert not any(f'"{machine}"' in text for machine in ("web", "m1", "m2", "m3"))
    if any(agent.things.made[thing] in repr(given[0]) for thing in HIDDEN):
        asked = document("query", name, QUERIES[name], given[0], depth=2)
        theirs = await agent.ask(asked, **given[0])
        unknown = await agent.ask(asked, **row.given(unreal))
        if name not in ("events", "nodes"):  # cursors differ, and what is visible is found
            assert _comparable(theirs, agent.things) == _comparable(unknown, unreal)


async def test_every_hidden_thing_is_shown_to_a_token_without_the_limit(agent: Agent):
    """Otherwise the test above would prove nothing."""
    asked = "query ($ids: [ID!]!) { nodes(ids: $ids) { id } }"
    wanted = {"ids": [agent.things.made[thing] for thing in HIDDEN]}
    assert (await agent.ask(asked, **wanted)).data["nodes"] == [None] * len(HIDDEN)
    shown = (await agent.api.ask(asked, **wanted)).data["nodes"]
    assert [node["id"] for node in shown] == wanted["ids"]


@pytest.mark.parametrize("name", sorted(name for name in MUTATIONS if names_hidden(name)))
async def test_no_mutation_changes_or_detects_what_belongs_to_another_token(agent: Agent, name: str):
    if MUTATION_TABLE[name] > Least.OPERATOR:
        return  # limits are not for an ADMIN's token
    real, unreal = (
        {"input": {key: value for key, value in TRIALS[name][0](things).items() if key != "idempotencyKey"}}
        for things in (agent.things, _unknown(agent.things))
    )
    asked = document("mutation", name, MUTATIONS[name], real, depth=2)
    before = await _rows(agent)  # type: ignore[arg-type]  # has an `api`, too

    theirs, unknown = await agent.ask(asked, **real), await agent.ask(asked, **unreal)

    assert _comparable(theirs, agent.things) == _comparable(unknown, _unknown(agent.things))
    assert "NOT_FOUND" in orjson.dumps(theirs.body).decode()
    assert await _rows(agent) == before  # type: ignore[arg-type]


async def test_verbs_by_name_and_by_filter_reach_only_its_own(agent: Agent):
    by_name = 'mutation { stopInstance(input: {name: "web"}) { errors { code } } }'
    assert (await agent.ask(by_name)).data["stopInstance"]["errors"] == [{"code": "INSTANCE_NOT_FOUND"}]
    bulk = """mutation { deleteInstances(input: {filter: {}, expectedCount: 1, validateOnly: true}) {
        results { instanceId errors { code } } errors { code } } }"""
    assert (await agent.ask(bulk)).data["deleteInstances"] == {
        "results": [{"instanceId": agent.mine, "errors": []}],
        "errors": [],
    }
    again = "mutation { retryJobs(input: {}) { jobs errors { code } } }"
    assert (await agent.ask(again)).data["retryJobs"] == {"jobs": [], "errors": []}
    synced = await agent.ask("mutation { syncFleet { errors { code } } }")
    assert synced.error["code"] == "FORBIDDEN"


async def test_counts_and_costs_are_of_its_own(agent: Agent):
    answer = await agent.ask("""{
        instances { totalCount nodes { name } } operations { totalCount } fleetStats { total }
        fleet { items { nodes { instance { name } } } } budgets { totalCount } quotas { totalCount }
        spend { total { amountMicros } } viewer { project { spend { burnRate { amountMicros } } } }
        volumes { nodes { attachedTo { id } } } jobStats { kinds { kind } }
        events { nodes { instanceId } } }""")
    data = answer.data
    assert data["instances"] == {"totalCount": 1, "nodes": [{"name": "mine"}]}
    assert (data["operations"]["totalCount"], data["fleetStats"]["total"]) == (1, 1)
    assert data["fleet"]["items"]["nodes"] == [{"instance": {"name": "mine"}}]
    assert (data["budgets"]["totalCount"], data["quotas"]["totalCount"]) == (0, 0)
    assert data["spend"]["total"]["amountMicros"] == 0
    assert data["viewer"]["project"]["spend"]["burnRate"]["amountMicros"] == 0
    assert data["volumes"]["nodes"] == [{"attachedTo": []}]
    assert {each["instanceId"] for each in data["events"]["nodes"]} == {agent.mine}
    assert {each["kind"] for each in data["jobStats"]["kinds"]} >= {"CREATE_INSTANCE"}

    whole = (await agent.api.ask("{ spend { total { amountMicros } } instances { totalCount } }")).data
    assert whole["spend"]["total"]["amountMicros"] >= 1_000_000
    assert whole["instances"]["totalCount"] == 6


async def test_a_key_of_another_token_is_no_way_to_its_instance(agent: Agent):
    wish = {"name": "keyed", "productName": "RTX 4090 24GB", "image": "nginx", "idempotencyKey": "shared"}
    theirs = await agent.api.create(**wish)
    assert theirs["errors"] == []
    mine = await Api(agent.api.server, agent.api.world, agent.token, agent.api.caller).create(**wish)
    assert (mine["instance"], [error["code"] for error in mine["errors"]]) == (None, ["IDEMPOTENCY_KEY_REUSED"])
    again = await agent.api.create(**wish)
    assert (again["replayed"], again["instance"]["id"]) == (True, theirs["instance"]["id"])
    await agent.api.delete(theirs["instance"]["id"])


# Those that begin with a message, those that wait for the next event, and those of one object.
FIRST = {"fleetStats": {"total": 1}, "spend": {"burnRate": {"amountMicros": 0}}, "jobStats": None}
EVENTS = ("instanceEvents", "projectEvents")
OF_ONE = ("instanceUpdated", "operationUpdated", "instanceLog")
ABOUT_NONE = ("market",)  # of the provider's offers


def test_every_subscription_is_tried():
    assert {*FIRST, *EVENTS, *OF_ONE, *ABOUT_NONE} == set(SUBSCRIPTIONS)


@pytest.mark.parametrize("name", OF_ONE)
async def test_another_tokens_things_can_not_be_subscribed_to(agent: Agent, name: str):
    errors = []
    for things in (agent.things, _unknown(agent.things)):
        given = SUBSCRIPTION_TABLE[name].given(things)
        asked = document("subscription", name, SUBSCRIPTIONS[name], given)
        async with agent.api.server.watching(asked, token=agent.token, variables=given) as socket:
            errors.append({key: value for key, value in (await socket.error()).items() if key != "requestId"})
    assert errors[0] == errors[1]
    assert errors[0]["code"].endswith("_NOT_FOUND")


@pytest.mark.parametrize("name", sorted(FIRST))
async def test_statistics_are_not_shared_with_tokens_that_see_more(agent: Agent, name: str):
    asked = {
        "fleetStats": "subscription { fleetStats { total } }",
        "spend": "subscription { spend { burnRate { amountMicros } } }",
        "jobStats": "subscription { jobStats { kinds { kind scheduled waiting } } }",
    }[name]
    operator, _ = await agent.api.world.new_token("team", Role.OPERATOR)  # of the same role
    async with agent.api.server.watching(asked, token=operator) as whole:
        all_of_it = await whole.next(name)
        async with agent.api.server.watching(asked, token=agent.token) as own:
            assert FIRST[name] in (None, seen := await own.next(name))
            assert seen != all_of_it


async def test_events_of_other_tokens_are_not_sent(agent: Agent):
    world, server = agent.api.world, agent.api.server
    rows = [await world.put(InstanceStatus.EXITED, owner_token_id=owner) for owner in (None, _uuid(agent.token_id))]
    theirs, mine = (ids.format_id(ids.INSTANCE, row.id) for row in rows)
    asked = """subscription ($after: String) {
        instanceEvents(filter: {types: ["instance.changed"]}, after: $after) { instanceId type } }"""
    page = (await agent.ask("{ events(first: 100) { pageInfo { endCursor } } }")).data["events"]["pageInfo"]
    given = {"after": page["endCursor"]}
    async with (
        server.watching(asked, token=agent.token, variables=given) as own,
        server.watching(asked, token=agent.api.token, variables=given) as whole,
    ):
        for value in ("one", "two"):  # the first may be replayed, the second is sent live
            for id in (theirs, mine):
                wish = {"id": id, "labels": [{"key": "a", "value": value}]}
                assert (await agent.api.ask(UPDATE, input=wish)).data["updateInstance"]["errors"] == []
            assert [await whole.next("instanceEvents") for _ in range(2)] == [changed(theirs), changed(mine)]
            assert await own.next("instanceEvents") == changed(mine)
    await world.execute(
        "UPDATE instance SET status = 'DELETED', deleted_at = now() WHERE id = ANY($1)", [row.id for row in rows]
    )


UPDATE = "mutation ($input: UpdateInstanceInput!) { updateInstance(input: $input) { errors { code } } }"


def changed(instance_id: str) -> dict[str, str]:
    return {"instanceId": instance_id, "type": "instance.changed"}
