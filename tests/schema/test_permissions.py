"""Permissions of every root field of the schema, for every kind of caller.

The table below has to name each of them, so a new one can't be forgotten.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any, cast

import orjson
import pytest
from graphql import (
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    get_named_type,
    is_leaf_type,
)

from schema import ids
from schema.root import schema
from server.auth.tokens import create_token, new_secret
from server.clock import now
from server.db.database import Database
from server.db.notify import Notifier
from server.enums import Role
from tests.schema.mutations.test_validate_only import TRIALS
from tests.support.api import Api
from tests.support.api_server import NO_LIMITS, Answer, serving
from tests.support.databases import DatabaseMaker
from tests.support.seed import Things, make_things
from tests.support.world import World, a_simulator

CORE = cast("GraphQLSchema", schema._schema)
QUERIES = cast("GraphQLObjectType", CORE.query_type).fields
MUTATIONS = cast("GraphQLObjectType", CORE.mutation_type).fields
SUBSCRIPTIONS = cast("GraphQLObjectType", CORE.subscription_type).fields


class Least(IntEnum):
    """The least that a caller must be."""

    READER = 1
    OPERATOR = 2
    ADMIN = 3
    SERVER = 4  # an ADMIN of the project `default`


Given = Callable[[Things], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """`given` are the arguments; the ids in them are of things of the caller's project."""

    least: Least
    given: Given = lambda _: {}


WISH = {"productName": "RTX 4090 24GB", "image": "nginx"}
QUERY_TABLE: dict[str, Row] = {
    "viewer": Row(Least.READER),
    "serverInfo": Row(Least.READER),
    "node": Row(Least.READER, lambda it: {"id": it.ready}),
    "nodes": Row(Least.READER, lambda it: {"ids": list(it.made.values())}),
    "instance": Row(Least.READER, lambda it: {"id": it.ready}),
    "instanceByName": Row(Least.READER, lambda _: {"name": "web"}),
    "instances": Row(Least.READER, lambda it: {"filter": {"ids": [it.ready, it.exited]}}),
    "operation": Row(Least.READER, lambda it: {"id": it.operation}),
    "operations": Row(Least.READER, lambda it: {"filter": {"instanceId": it.busy}}),
    "awaitOperation": Row(Least.READER, lambda it: {"id": it.operation, "timeout": 0}),
    "products": Row(Least.READER),
    "regions": Row(Least.READER),
    "templates": Row(Least.READER),
    "template": Row(Least.READER, lambda it: {"id": it.template}),
    "registryAuths": Row(Least.READER),
    "account": Row(Least.SERVER),
    "projectEvents": Row(Least.READER),
    "networks": Row(Least.READER),
    "volumes": Row(Least.READER),
    "unlinkedVolumes": Row(Least.SERVER),
    "prewarms": Row(Least.READER),
    "prewarmQuota": Row(Least.READER),
    "providerJobs": Row(Least.READER),
    "quote": Row(Least.READER, lambda _: {"input": WISH}),
    "fleet": Row(Least.READER),
    "fleetStats": Row(Least.READER),
    "spend": Row(Least.READER),
    "market": Row(Least.READER),
    "offerHistory": Row(
        Least.READER, lambda _: {"productName": "RTX 4090 24GB", "region": "AS-SGP-02", "billingMode": "SPOT"}
    ),
    "events": Row(Least.READER, lambda it: {"filter": {"ids": [it.ready, it.busy]}}),
    "job": Row(Least.READER, lambda it: {"id": it.job}),
    "jobs": Row(Least.READER, lambda it: {"filter": {"instanceId": it.busy}}),
    "jobStats": Row(Least.READER),
    "webhooks": Row(Least.READER),
    "budgets": Row(Least.READER),
    "alerts": Row(Least.READER),
    "quotas": Row(Least.READER),
    "webhookDelivery": Row(Least.READER, lambda it: {"id": it.delivery}),
    "webhookDeliveries": Row(Least.READER, lambda it: {"filter": {"instanceId": it.ready}}),
    "sshAccess": Row(Least.OPERATOR, lambda it: {"instanceId": it.ready}),
    "instanceAccess": Row(Least.OPERATOR, lambda it: {"instanceId": it.ready}),
    "instanceLog": Row(Least.OPERATOR, lambda it: {"instanceId": it.ready}),
    "instanceMetrics": Row(Least.READER, lambda it: {"instanceId": it.ready}),
    "tokens": Row(Least.ADMIN, lambda it: {"projectId": it.project}),
    "projects": Row(Least.ADMIN),
    "auditEvents": Row(Least.ADMIN),
    "cacheStats": Row(Least.SERVER),
}
MUTATION_TABLE: dict[str, Least] = {
    "createInstance": Least.OPERATOR,
    "startInstance": Least.OPERATOR,
    "stopInstance": Least.OPERATOR,
    "restartInstance": Least.OPERATOR,
    "migrateInstance": Least.OPERATOR,
    "updateInstance": Least.OPERATOR,
    "saveImage": Least.OPERATOR,
    "upgradeInstance": Least.OPERATOR,
    "cancelProviderJob": Least.OPERATOR,
    "deleteInstance": Least.OPERATOR,
    "stopInstances": Least.OPERATOR,
    "deleteInstances": Least.OPERATOR,
    "cancelOperation": Least.OPERATOR,
    "retryOperation": Least.OPERATOR,
    "updateWait": Least.OPERATOR,
    "syncFleet": Least.OPERATOR,
    "extendLifetime": Least.OPERATOR,
    "heartbeat": Least.OPERATOR,
    "setLifetimePolicy": Least.ADMIN,
    "checkHealth": Least.OPERATOR,
    "retryJob": Least.OPERATOR,
    "retryJobs": Least.OPERATOR,
    "cancelJob": Least.OPERATOR,
    "redeliverWebhook": Least.OPERATOR,
    "testWebhook": Least.OPERATOR,
    "createRegistryAuth": Least.OPERATOR,
    "deleteRegistryAuth": Least.OPERATOR,
    "createTemplate": Least.OPERATOR,
    "updateTemplate": Least.OPERATOR,
    "deleteTemplate": Least.OPERATOR,
    "createNetwork": Least.OPERATOR,
    "updateNetwork": Least.OPERATOR,
    "deleteNetwork": Least.OPERATOR,
    "createVolume": Least.OPERATOR,
    "updateVolume": Least.OPERATOR,
    "deleteVolume": Least.OPERATOR,
    "prewarmImage": Least.OPERATOR,
    "updatePrewarm": Least.OPERATOR,
    "deletePrewarm": Least.OPERATOR,
    "rotateWebhookSecret": Least.ADMIN,
    "createWebhook": Least.ADMIN,
    "deleteWebhook": Least.ADMIN,
    "createBudget": Least.ADMIN,
    "updateBudget": Least.ADMIN,
    "deleteBudget": Least.ADMIN,
    "setQuota": Least.ADMIN,
    "syncSpend": Least.ADMIN,
    "createAlert": Least.OPERATOR,
    "deleteAlert": Least.OPERATOR,
    "createToken": Least.ADMIN,
    "revokeToken": Least.ADMIN,
    "createProject": Least.SERVER,
    "adoptInstance": Least.SERVER,
    "adoptVolume": Least.SERVER,
    "clearCache": Least.SERVER,
    "clearExpiredCache": Least.SERVER,
    "pauseJobs": Least.SERVER,
    "resumeJobs": Least.SERVER,
}
SUBSCRIPTION_TABLE: dict[str, Row] = {
    "instanceEvents": Row(Least.READER, lambda it: {"filter": {"ids": [it.ready]}}),
    "projectEvents": Row(Least.READER),
    "instanceUpdated": Row(Least.READER, lambda it: {"id": it.ready}),
    "instanceLog": Row(Least.OPERATOR, lambda it: {"instanceId": it.ready}),
    "operationUpdated": Row(Least.READER, lambda it: {"id": it.operation}),
    "fleetStats": Row(Least.READER),
    "spend": Row(Least.READER),
    "market": Row(Least.READER),
    "jobStats": Row(Least.READER),
}


def test_the_table_names_every_field():
    assert set(QUERY_TABLE) == set(QUERIES)
    assert set(MUTATION_TABLE) == set(MUTATIONS) == set(TRIALS)
    assert set(SUBSCRIPTION_TABLE) == set(SUBSCRIPTIONS)


@dataclass(frozen=True)
class Callers:
    """Tokens by who holds them. The project is not the server's own, so its ADMIN is only that."""

    api: Api
    things: Things
    reader: str
    operator: str
    admin: str
    server: str
    expired: str
    revoked: str
    stranger: str
    strange_project: str

    def allowed(self, least: Least) -> list[tuple[str, str, bool]]:
        """Whose token, and whether it opens the field."""
        held = [("READER", self.reader), ("OPERATOR", self.operator), ("ADMIN", self.admin), ("SERVER", self.server)]
        return [(name, token, Least[name] >= least) for name, token in held]

    @property
    def nobodys(self) -> dict[str, str | None]:
        return {"no token": None, "an unknown one": new_secret(), "expired": self.expired, "revoked": self.revoked}


@pytest.fixture(scope="module")
async def callers(new_database: DatabaseMaker) -> AsyncIterator[Callers]:
    url = await new_database.migrated()
    database = Database(url)
    signals = Notifier(database)
    signals.start()
    async with (
        a_simulator(stock_factor=1000) as simulator,
        serving(url, simulator, wrong_token_limit=0, **NO_LIMITS) as server,
    ):
        world = World(database, signals, simulator)
        await world.open()
        operator, caller = await world.new_token("team", Role.OPERATOR)
        world.caller = caller
        api = Api(server, world, operator, caller)
        made = await make_things(api)
        things = Things(made.token, made.made | {"project": ids.format_id(ids.PROJECT, caller.project_id)})
        stranger, strange = await world.new_token("strangers", Role.ADMIN)
        expired = new_secret()
        async with database.write() as session:
            past = now() - timedelta(seconds=1)
            await create_token(session, project="team", name="x", role=Role.ADMIN, secret=expired, expires_at=past)
        revoked, gone = await world.new_token("team", Role.ADMIN)
        await world.execute("UPDATE token SET revoked_at = now() WHERE id = $1", gone.token_id)
        yield Callers(
            api=api,
            things=things,
            reader=(await world.new_token("team", Role.READER))[0],
            operator=operator,
            admin=(await world.new_token("team", Role.ADMIN))[0],
            server=(await world.new_token("default", Role.ADMIN))[0],
            expired=expired,
            revoked=revoked,
            stranger=stranger,
            strange_project=ids.format_id(ids.PROJECT, strange.project_id),
        )
        await world.close()
    await signals.stop()
    await database.close()


@pytest.mark.parametrize("name", sorted(QUERY_TABLE))
async def test_a_query_is_answered_for_permitted_callers(callers: Callers, name: str):
    row = QUERY_TABLE[name]
    given = row.given(callers.things)
    await _check_doors(callers, document("query", name, QUERIES[name], given), given, row.least)


@pytest.mark.parametrize("name", sorted(MUTATION_TABLE))
async def test_a_mutation_is_executed_for_permitted_callers(callers: Callers, name: str):
    """Tried out only; the guard is the same."""
    given = {"input": {**TRIALS[name][0](callers.things), "validateOnly": True}}
    before = await _rows(callers)
    await _check_doors(callers, document("mutation", name, MUTATIONS[name], given), given, MUTATION_TABLE[name])
    assert await _rows(callers) == before


async def _check_doors(callers: Callers, asked: str, given: dict[str, Any], least: Least) -> None:
    for who, token in callers.nobodys.items():
        answer = await callers.api.server.ask(asked, token=token, variables=given)
        assert (answer.status, answer.error["code"]) == (401, "UNAUTHENTICATED"), who
        assert "data" not in answer.body, who
    for who, token, is_allowed in callers.allowed(least):
        answer = await callers.api.server.ask(asked, token=token, variables=given)
        codes = [error["extensions"]["code"] for error in answer.body.get("errors", [])]
        assert codes == ([] if is_allowed else ["FORBIDDEN"]), (who, answer.body)
        assert is_allowed or answer.body["data"] is None or not any(answer.body["data"].values()), who


@pytest.mark.parametrize("name", sorted(SUBSCRIPTION_TABLE))
async def test_a_subscription_is_open_to_permitted_callers(callers: Callers, name: str):
    row = SUBSCRIPTION_TABLE[name]
    given = row.given(callers.things)
    asked = document("subscription", name, SUBSCRIPTIONS[name], given)
    for token in callers.nobodys.values():
        async with callers.api.server.socket(token) as socket:
            assert await socket.close_code() == 4403
    for who, token, is_allowed in callers.allowed(row.least):
        async with callers.api.server.watching(asked, token=token, variables=given) as socket:
            if not is_allowed:
                assert (await socket.error())["code"] == "FORBIDDEN", who
            elif name == "instanceLog":  # its machine does not exist
                expected = "INSTANCE_NOT_FOUND" if who == "SERVER" else "INSTANCE_NOT_RUNNING"
                assert (await socket.error())["code"] == expected, who
            elif name in ("instanceEvents", "projectEvents"):
                assert await socket.is_silent(), who
            elif name == "market":  # nothing was read yet
                assert await socket.next(name) == [], who
            elif who == "SERVER" and given:  # what is asked for is another project's
                assert (await socket.error())["code"].endswith("_NOT_FOUND"), who
            else:
                assert await socket.next(name), who


@pytest.mark.parametrize("name", sorted(QUERY_TABLE))
async def test_what_another_project_has_reads_as_not_found(callers: Callers, name: str):
    row = QUERY_TABLE[name]
    real, unreal = row.given(callers.things), row.given(_unknown(callers.things))
    asked = document("query", name, QUERIES[name], real, depth=3)
    theirs = await callers.api.server.ask(asked, token=callers.stranger, variables=real)
    unknown = await callers.api.server.ask(asked, token=callers.stranger, variables=unreal)

    if real != unreal:
        assert _comparable(theirs, callers.things) == _comparable(unknown, _unknown(callers.things))
    text = orjson.dumps(theirs.body.get("data")).decode()
    for what, id in callers.things.made.items():
        assert id not in text, what
        assert id.partition("_")[2] not in text or what in ("job", "sending_job", "failed_job", "machine", "storage"), (
            what
        )
    assert '"web"' not in text


class Marks(Things):
    """Stands in for each thing, to see which of them an input names."""

    def __getattr__(self, name: str) -> str:
        return f"<{name}>"


# Those that name something which could be another's, and are for an ADMIN of a project.
NAMING = sorted(
    name
    for name, least in MUTATION_TABLE.items()
    if least is not Least.SERVER and "<" in repr(TRIALS[name][0](Marks("", {})))
)


@pytest.mark.parametrize("name", NAMING)
async def test_another_projects_things_can_not_be_changed_or_detected(callers: Callers, name: str):
    # Without a key: it would be kept for the first caller that sent it.
    real, unreal = (
        {"input": {key: value for key, value in TRIALS[name][0](things).items() if key != "idempotencyKey"}}
        for things in (callers.things, _unknown(callers.things))
    )
    asked = document("mutation", name, MUTATIONS[name], real, depth=3)
    before = await _rows(callers)

    theirs = await callers.api.server.ask(asked, token=callers.stranger, variables=real)
    unknown = await callers.api.server.ask(asked, token=callers.stranger, variables=unreal)

    assert _comparable(theirs, callers.things) == _comparable(unknown, _unknown(callers.things))
    assert await _rows(callers) == before


@pytest.mark.parametrize("name", ["instanceUpdated", "operationUpdated", "instanceLog"])
async def test_another_projects_things_can_not_be_subscribed_to(callers: Callers, name: str):
    errors = []
    for things in (callers.things, _unknown(callers.things)):
        given = SUBSCRIPTION_TABLE[name].given(things)
        asked = document("subscription", name, SUBSCRIPTIONS[name], given)
        async with callers.api.server.watching(asked, token=callers.stranger, variables=given) as socket:
            errors.append({key: value for key, value in (await socket.error()).items() if key != "requestId"})
    assert errors[0] == errors[1]


def _unknown(things: Things) -> Things:
    """Ids of the same shape that belong to nothing."""

    def unknown(id: str, number: int) -> str:
        kind, _, rest = id.partition("_")
        if kind == ids.JOB:
            return f"{kind}_{88_888_888_800 + number}"
        return f"{kind}_{number:0>32}" if len(rest) == 32 else f"{number:0>20}"

    return Things(things.token, {name: unknown(id, place) for place, (name, id) in enumerate(things.made.items())})


def _comparable(answer: Answer, things: Things) -> str:
    """An answer without what differs between any two: the request's id, the ids that were given, and the time."""
    body = orjson.loads(orjson.dumps(answer.body))
    for error in body.get("errors", []):
        error["extensions"].pop("requestId", None)
    text = f"{answer.status} {orjson.dumps(body).decode()}"
    for name, id in things.made.items():
        text = text.replace(id, f"<{name}>")
    return text


async def _rows(callers: Callers) -> dict[str, Any]:
    tables = ("instance", "operation", "job", "job_pause", "delivery", "project", "token", "webhook_secret")
    found: dict[str, Any] = {}
    for name in (*tables, "idempotency_key"):
        query = f'SELECT (to_jsonb(t) - $1::text)::text FROM "{name}" AS t'
        found[name] = sorted(row[0] for row in await callers.api.world.rows(query, "last_used_at"))
    return found


def document(kind: str, name: str, field: GraphQLField, given: dict[str, Any], depth: int = 1) -> str:
    """Ask for a field with these arguments, and for everything in the answer that takes none."""
    variables = ", ".join(f"${arg}: {field.args[arg].type}" for arg in given)
    arguments = ", ".join(f"{arg}: ${arg}" for arg in given)
    head = f"{kind} ({variables})" if given else kind
    call = f"{name}({arguments})" if given else name
    return f"{head} {{ {call} {selection(get_named_type(field.type), depth)} }}"


def selection(type: Any, depth: int) -> str:
    if is_leaf_type(type):
        return ""
    chosen = ["__typename"]
    assert isinstance(type, GraphQLObjectType | GraphQLInterfaceType)
    for name, field in type.fields.items():
        if any(isinstance(arg.type, GraphQLNonNull) and arg.default_value is None for arg in field.args.values()):
            continue
        inner = get_named_type(field.type)
        if is_leaf_type(inner):
            if name not in ("uptime", "localTook", "novitaTook", "cacheAge", "lastUsedAt", "staleFor"):
                chosen.append(name)
        elif depth > 0:
            chosen.append(f"{name} {selection(inner, depth - 1)}")
    return f"{{ {' '.join(chosen)} }}"
