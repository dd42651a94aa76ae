"""validateOnly: every mutation can be tried without leaving a change."""

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from graphql import GraphQLInputObjectType, GraphQLSchema, get_named_type

from schema.root import schema
from server.db.database import Database
from server.db.notify import Notifier
from tests.support.api import Api
from tests.support.api_server import NO_LIMITS, serving
from tests.support.databases import DatabaseMaker
from tests.support.seed import Things, make_things
from tests.support.world import World, a_simulator

MUTATIONS = cast("GraphQLSchema", schema._schema).mutation_type.fields  # type: ignore[union-attr]


Input = Callable[[Things], dict[str, Any]]

# For each mutation something that would be accepted, and something that would be refused with a code.
BUDGET = {
    "name": "one",
    "scope": {"project": True},
    "period": "DAY",
    "limit": {"amountMicros": 1, "currency": "USD"},
}
TRIALS: dict[str, tuple[Input, Input, str]] = {
    "createInstance": (
        lambda _: {
            "name": "new",
            "productName": "RTX 4090 24GB",
            "source": {"image": "nginx"},
            "idempotencyKey": "key-0",
        },
        lambda _: {"name": "web", "productName": "RTX 4090 24GB", "image": "nginx"},
        "INSTANCE_NAME_TAKEN",
    ),
    "deleteInstance": (
        lambda it: {"id": it.ready},
        lambda it: {"id": it.ready, "expectedVersion": 99},
        "VERSION_CONFLICT",
    ),
    "startInstance": (
        lambda it: {"instance": {"id": it.exited}, "idempotencyKey": "key-1"},
        lambda it: {"id": it.ready},
        "INSTANCE_NOT_STARTABLE",
    ),
    "stopInstance": (lambda it: {"id": it.ready}, lambda it: {"id": it.exited}, "INSTANCE_NOT_STOPPABLE"),
    "restartInstance": (lambda it: {"id": it.ready}, lambda it: {"id": it.exited}, "INSTANCE_NOT_RESTARTABLE"),
    "migrateInstance": (lambda it: {"id": it.ready}, lambda it: {"id": it.busy}, "OPERATION_IN_PROGRESS"),
    "updateInstance": (
        lambda it: {
            "id": it.ready,
            "name": "other",
            "labels": [{"key": "a", "value": "b"}],
            "webhook": {"remove": True},
        },
        lambda it: {"id": it.ready, "name": "web"},
        "INSTANCE_NAME_TAKEN",
    ),
    "saveImage": (
        lambda it: {"id": it.exited, "image": "r.example.test/saved:1", "idempotencyKey": "key-s"},
        lambda it: {"id": it.ready, "image": "r.example.test/saved:1"},
        "INSTANCE_NOT_EXITED",
    ),
    "upgradeInstance": (
        lambda it: {"id": it.ready, "image": "nginx:1.28", "env": [{"key": "A", "value": "1"}]},
        lambda it: {"id": it.ready},
        "NOTHING_TO_UPDATE",
    ),
    "cancelProviderJob": (
        lambda it: {"id": it.providerJob},
        lambda _: {"id": "pjob_nothing"},
        "PROVIDER_JOB_NOT_FOUND",
    ),
    "stopInstances": (lambda it: {"ids": [it.ready], "idempotencyKey": "key-2"}, lambda _: {"ids": []}, "INVALID_IDS"),
    "deleteInstances": (lambda it: {"ids": [it.ready, it.exited]}, lambda _: {"ids": []}, "INVALID_IDS"),
    "cancelOperation": (lambda it: {"id": it.operation}, lambda it: {"id": it.ready}, "OPERATION_NOT_FOUND"),
    "retryOperation": (
        lambda it: {"id": it.failed_operation, "idempotencyKey": "key-3"},
        lambda it: {"id": it.operation},
        "OPERATION_IN_PROGRESS",
    ),
    "updateWait": (
        lambda it: {"operationId": it.may_wait, "priority": 60},
        lambda it: {"operationId": it.operation, "priority": 60},
        "INVALID_WAIT",
    ),
    "extendLifetime": (lambda it: {"id": it.ready, "by": 3600}, lambda it: {"id": it.ready}, "INVALID_LIFETIME"),
    "heartbeat": (lambda it: {"id": it.ready}, lambda it: {"id": it.operation}, "INSTANCE_NOT_FOUND"),
    "setLifetimePolicy": (
        lambda _: {"required": True},
        lambda _: {"maxDurationAtMost": 1},
        "INVALID_LIFETIME",
    ),
    "syncFleet": (lambda _: {}, lambda _: {}, ""),
    "syncSpend": (lambda _: {}, lambda _: {}, ""),
    "adoptInstance": (lambda it: {"novitaId": it.machine}, lambda _: {"novitaId": "nobody"}, "MACHINE_NOT_FOUND"),
    "clearCache": (lambda _: {"name": "products"}, lambda _: {"name": "nothing"}, "CACHE_NOT_FOUND"),
    "clearExpiredCache": (lambda _: {}, lambda _: {}, ""),
    "retryJob": (lambda it: {"id": it.failed_job}, lambda it: {"id": it.job}, "JOB_NOT_RETRYABLE"),
    "retryJobs": (lambda _: {}, lambda _: {"limit": 0}, "INVALID_LIMIT"),
    "cancelJob": (lambda it: {"id": it.sending_job}, lambda it: {"id": it.failed_job}, "JOB_NOT_CANCELLABLE"),
    "pauseJobs": (lambda _: {"kind": "SEND_WEBHOOK"}, lambda _: {"kind": "OTHER"}, "INVALID_JOB_KIND"),
    "resumeJobs": (lambda _: {"kind": "RECONCILE"}, lambda _: {"kind": "OTHER"}, "INVALID_JOB_KIND"),
    "rotateWebhookSecret": (lambda _: {}, lambda _: {"overlap": 700_000}, "INVALID_OVERLAP"),
    "redeliverWebhook": (lambda it: {"id": it.delivery}, lambda it: {"id": it.ready}, "DELIVERY_NOT_FOUND"),
    "testWebhook": (
        lambda _: {"url": "http://127.0.0.1:9/hook"},
        lambda _: {"url": "ftp://127.0.0.1"},
        "INVALID_WEBHOOK_URL",
    ),
    "createWebhook": (
        lambda _: {"url": "http://127.0.0.1:9/hook", "types": ["balance.low"], "idempotencyKey": "key-w"},
        lambda _: {"url": "http://127.0.0.1:9/hook", "types": ["balance.high"]},
        "INVALID_EVENT_TYPE",
    ),
    "deleteWebhook": (lambda it: {"id": it.webhook}, lambda it: {"id": it.delivery}, "WEBHOOK_NOT_FOUND"),
    "createBudget": (
        lambda _: {**BUDGET, "idempotencyKey": "key-b"},
        lambda _: {**BUDGET, "thresholds": [101]},
        "INVALID_BUDGET",
    ),
    "updateBudget": (
        lambda it: {"id": it.budget, "action": "NOTIFY"},
        lambda it: {"id": it.budget, "name": ""},
        "INVALID_BUDGET",
    ),
    "deleteBudget": (lambda it: {"id": it.budget}, lambda it: {"id": it.delivery}, "BUDGET_NOT_FOUND"),
    "setQuota": (
        lambda _: {"scope": {"project": True}, "maxGpus": 8},
        lambda _: {"scope": {"project": True}, "maxGpus": -1},
        "INVALID_QUOTA",
    ),
    "createAlert": (
        lambda _: {"productNames": ["RTX 4090 24GB"], "idempotencyKey": "key-a"},
        lambda _: {"gpuCount": 9},
        "INVALID_ALERT",
    ),
    "deleteAlert": (lambda it: {"id": it.alert}, lambda it: {"id": it.delivery}, "ALERT_NOT_FOUND"),
    "checkHealth": (
        lambda it: {"instanceId": it.ready},
        lambda it: {"instanceId": it.exited},
        "INSTANCE_NOT_RUNNING",
    ),
    "createRegistryAuth": (
        lambda _: {"name": "registry.example.test", "username": "u", "password": "p4ssw0rd", "idempotencyKey": "key-3"},
        lambda _: {"name": "", "username": "u", "password": "p"},
        "INVALID_REGISTRY_AUTH",
    ),
    "deleteRegistryAuth": (
        lambda it: {"id": it.registryAuth},
        lambda _: {"id": "auth_nothing"},
        "REGISTRY_AUTH_NOT_FOUND",
    ),
    "createTemplate": (
        lambda _: {"name": "mine", "image": "nginx", "idempotencyKey": "key-4"},
        lambda _: {"name": "mine", "image": ""},
        "INVALID_IMAGE",
    ),
    "updateTemplate": (
        lambda it: {"id": it.template, "image": "nginx:1.28"},
        lambda _: {"id": "tpl_nothing", "image": "nginx"},
        "TEMPLATE_NOT_FOUND",
    ),
    "deleteTemplate": (lambda it: {"id": it.template}, lambda _: {"id": "tpl_nothing"}, "TEMPLATE_NOT_FOUND"),
    "createVolume": (
        lambda _: {"name": "other", "region": "AS-SGP-02", "sizeGb": 10, "idempotencyKey": "key-v"},
        lambda _: {"name": "other", "region": "OC-AU-01", "sizeGb": 10},
        "VOLUMES_NOT_SUPPORTED",
    ),
    "updateVolume": (
        lambda it: {"id": it.volume, "sizeGb": 100},
        lambda it: {"id": it.volume, "sizeGb": 10},
        "INVALID_VOLUME",
    ),
    "deleteVolume": (lambda it: {"id": it.volume}, lambda it: {"id": it.ready}, "VOLUME_NOT_FOUND"),
    "adoptVolume": (lambda it: {"novitaId": it.storage}, lambda _: {"novitaId": "x"}, "VOLUME_NOT_FOUND"),
    "createNetwork": (
        lambda _: {"name": "other", "region": "AS-SGP-02", "idempotencyKey": "key-5"},
        lambda _: {"name": "other", "region": "OC-AU-01"},
        "NETWORKS_NOT_SUPPORTED",
    ),
    "updateNetwork": (
        lambda it: {"id": it.network, "name": "other"},
        lambda it: {"id": it.network, "name": ""},
        "INVALID_NETWORK_NAME",
    ),
    "deleteNetwork": (lambda it: {"id": it.network}, lambda _: {"id": "net_nothing"}, "NETWORK_NOT_FOUND"),
    "prewarmImage": (
        lambda _: {"image": "nginx", "region": "AS-SGP-02", "productNames": ["RTX 4090 24GB"]},
        lambda _: {"image": "nginx", "region": "AS-SGP-02", "productNames": ["Abacus"]},
        "PRODUCT_NOT_FOUND",
    ),
    "updatePrewarm": (
        lambda it: {"id": it.prewarm, "note": "other"},
        lambda _: {"id": "pre_nothing", "note": ""},
        "PREWARM_NOT_FOUND",
    ),
    "deletePrewarm": (lambda it: {"id": it.prewarm}, lambda _: {"id": "pre_nothing"}, "PREWARM_NOT_FOUND"),
    "createToken": (lambda _: {"name": "ci"}, lambda _: {"name": ""}, "INVALID_TOKEN_NAME"),
    "revokeToken": (lambda it: {"id": it.a_token}, lambda it: {"id": it.ready}, "TOKEN_NOT_FOUND"),
    "createProject": (lambda _: {"name": "shop"}, lambda _: {"name": "default"}, "PROJECT_NAME_TAKEN"),
}


def test_every_mutation_takes_it_and_is_tried():
    assert set(TRIALS) == set(MUTATIONS)
    for name, field in MUTATIONS.items():
        assert list(field.args) == ["input"], name
        kind = get_named_type(field.args["input"].type)
        assert isinstance(kind, GraphQLInputObjectType)
        assert "validateOnly" in kind.fields, name


@pytest.fixture(scope="module")
async def stage(new_database: DatabaseMaker) -> AsyncIterator[tuple[Api, Things]]:
    """One for all: what is only tried leaves it as it is."""
    url = await new_database.migrated()
    database = Database(url)
    signals = Notifier(database)
    signals.start()
    async with a_simulator(stock_factor=1000) as simulator, serving(url, simulator, **NO_LIMITS) as server:
        world = World(database, signals, simulator)
        await world.open()
        token, caller = await world.new_token()
        world.caller = caller
        api = Api(server, world, token, caller)
        yield api, await make_things(api)
        await world.close()
    await signals.stop()
    await database.close()


@pytest.fixture
async def things(api: Api) -> Things:
    return await make_things(api)


@pytest.mark.parametrize("name", sorted(TRIALS))
async def test_a_dry_run_changes_nothing(stage: tuple[Api, Things], name: str):
    api, things = stage
    accepted, refused, code = TRIALS[name]
    before = await _everything(api)
    made = api.world.made()

    answer = await _asked(api, things, name, {**accepted(things), "validateOnly": True})
    assert answer["errors"] == []
    assert all(not value for field, value in answer.items() if field not in ("errors", "__typename", "results"))
    last = await api.world.one("SELECT mutation, outcome FROM audit_event ORDER BY created_at DESC, id DESC LIMIT 1")
    assert tuple(last) == (name, "VALIDATED")
    if code:
        answer = await _asked(api, things, name, {**refused(things), "validateOnly": True})
        assert [error["code"] for error in answer["errors"]] == [code]

    assert await _everything(api) == before
    assert api.world.made() == made


async def test_a_mutation_succeeds_after_its_dry_run(api: Api, things: Things):
    before = await _everything(api)
    for name in ("createInstance", "startInstance", "updateInstance", "retryJob", "testWebhook", "createToken"):
        input = TRIALS[name][0](things)
        assert (await _asked(api, things, name, {**input, "validateOnly": True}))["errors"] == []
        assert await _everything(api) == before
        assert (await _asked(api, things, name, input))["errors"] == []
        after = await _everything(api)
        assert after != before
        before = after


async def _asked(api: Api, things: Things, name: str, input: dict[str, Any]) -> dict[str, Any]:
    document = f"""mutation ($input: {MUTATIONS[name].args["input"].type}) {{ {name}(input: $input) {{
        __typename errors {{ code message }} {_scalars(name)} }} }}"""
    return (await api.ask(document, token=things.token, input=input)).data[name]


async def test_each_item_of_a_batch_reports_what_would_be_refused(api: Api, things: Things):
    document = """mutation ($ids: [ID!]!) { stopInstances(input: {ids: $ids, validateOnly: true}) {
        results { instanceId instance { id } operation { id } replayed errors { code } } errors { code } } }"""
    results = (await api.ask(document, ids=[things.ready, things.exited, "inst_x"])).data["stopInstances"]["results"]

    assert [(each["instanceId"], [error["code"] for error in each["errors"]]) for each in results] == [
        (things.ready, []),
        (things.exited, ["INSTANCE_NOT_STOPPABLE"]),
        ("inst_x", ["INSTANCE_NOT_FOUND"]),
    ]
    assert all((each["instance"], each["operation"], each["replayed"]) == (None, None, False) for each in results)


async def test_a_later_mutation_of_the_same_document_is_executed(api: Api, things: Things):
    document = f"""mutation {{
        try: stopInstance(input: {{id: "{things.ready}", validateOnly: true}}) {{ instance {{ id }} errors {{ code }} }}
        do: stopInstance(input: {{id: "{things.ready}"}}) {{ instance {{ status }} errors {{ code }} }}
    }}"""
    data = (await api.ask(document)).data
    assert data["try"] == {"instance": None, "errors": []}
    assert data["do"] == {"instance": {"status": "STOPPING"}, "errors": []}


async def _everything(api: Api) -> dict[str, list[str]]:
    """Every row of every table, except for when a token was last used, what moves by itself, and the audit log."""
    names = await api.world.rows(
        """SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
           AND relnamespace = 'public'::regnamespace
           AND relname NOT IN ('event_log', 'outbox', 'event', 'audit_event')"""
    )
    found = {}
    for (name,) in names:
        rows = await api.world.rows(f'SELECT (to_jsonb(t) - $1::text)::text FROM "{name}" AS t', "last_used_at")
        found[name] = sorted(row[0] for row in rows)
    # Meanwhile the sequencer copies events from the outbox to the log.
    events = await api.world.rows("SELECT id::text FROM outbox UNION ALL SELECT id::text FROM event")
    return {**found, "events": sorted(row[0] for row in events)}


def _scalars(name: str) -> str:
    """All of the payload that takes no selection, and the ids of the rest."""
    payload = get_named_type(MUTATIONS[name].type)
    chosen = []
    for field, kind in payload.fields.items():  # type: ignore[union-attr]
        inner = get_named_type(kind.type)
        if field in ("errors", "__typename"):
            continue
        if not hasattr(inner, "fields"):
            chosen.append(field)
        elif "id" in inner.fields:
            chosen.append(f"{field} {{ id }}")
        else:
            chosen.append(f"{field} {{ __typename }}")
    return " ".join(chosen)
