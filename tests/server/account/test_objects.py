"""Registry auths, templates, networks and prewarmed images: created once, owned by a project, gone after a delete."""

from dataclasses import dataclass
from typing import Any

import pytest

from server.enums import Role
from server.queue.kinds import Reconcile
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api


@dataclass(frozen=True)
class Kind:
    """How one kind of object is created, listed and deleted."""

    field: str
    create: str
    delete: str
    listed: str
    table: str  # of the simulator
    route: str
    input: dict[str, Any]
    other: dict[str, Any]  # a change that makes it another request


KINDS = [
    Kind(
        "registryAuth",
        "createRegistryAuth",
        "deleteRegistryAuth",
        "registryAuths",
        "auth",
        "POST /repository/auth/save",
        {"name": "r.example.test", "username": "u", "password": "hunter22hunter"},
        {"username": "v"},
    ),
    Kind(
        "template",
        "createTemplate",
        "deleteTemplate",
        "templates { nodes",
        "template",
        "POST /template/create",
        {"name": "mine", "image": "nginx:1.27"},
        {"image": "nginx:1.28"},
    ),
    Kind(
        "network",
        "createNetwork",
        "deleteNetwork",
        "networks { nodes",
        "network",
        "POST /network/create",
        {"name": "lan", "region": "AS-SGP-02"},
        {"region": "US-CA-06"},
    ),
    Kind(
        "prewarm",
        "prewarmImage",
        "deletePrewarm",
        "prewarms { nodes",
        "prewarm",
        "POST /image/prewarm",
        {"image": "big:1", "region": "AS-SGP-02", "productNames": ["RTX 4090 24GB"]},
        {"note": "other"},
    ),
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.field for kind in KINDS])


async def send(api: Api, kind: Kind, *, token: str | None = None, **more: Any) -> Any:
    name = kind.create[0].upper() + kind.create[1:]
    document = f"""mutation ($input: {name}Input!) {{
        {kind.create}(input: $input) {{ {kind.field} {{ id }} replayed errors {{ code path }} }} }}"""
    return await api.ask(document, token=token, input={**kind.input, **more})


async def create(api: Api, kind: Kind, *, token: str | None = None, **more: Any) -> dict[str, Any]:
    return (await send(api, kind, token=token, **more)).data[kind.create]


async def delete(api: Api, kind: Kind, id: str, *, token: str | None = None) -> list[str]:
    name = kind.delete[0].upper() + kind.delete[1:]
    document = f"mutation ($input: {name}Input!) {{ {kind.delete}(input: $input) {{ deletedId errors {{ code }} }} }}"
    payload = (await api.ask(document, token=token, input={"id": id})).data[kind.delete]
    assert payload["deletedId"] == (None if payload["errors"] else id)
    return [error["code"] for error in payload["errors"]]


async def listed(api: Api, kind: Kind, *, token: str | None = None) -> set[str]:
    document = f"{{ {kind.listed} {{ id }} {'}' if '{' in kind.listed else ''} }}"
    data = next(iter((await api.ask(document, token=token)).data.values()))
    return {each["id"] for each in (data if isinstance(data, list) else data["nodes"])}


def made(api: Api, kind: Kind) -> set[str]:
    return set(api.world.simulator.world.table(kind.table))


@every_kind
async def test_it_is_created_once_listed_and_deleted(api: Api, kind: Kind):
    before = made(api, kind)

    first = await create(api, kind, idempotencyKey="k")
    again = await create(api, kind, idempotencyKey="k")

    assert first["errors"] == again["errors"] == []
    assert (first["replayed"], again["replayed"]) == (False, True)
    id = first[kind.field]["id"]
    assert again[kind.field] == {"id": id}
    assert len(made(api, kind) - before) == 1
    assert id in await listed(api, kind)
    assert [e["code"] for e in (await create(api, kind, **kind.other, idempotencyKey="k"))["errors"]] == [
        "IDEMPOTENCY_KEY_REUSED"
    ]
    assert await delete(api, kind, id) == []
    assert id not in await listed(api, kind)
    assert made(api, kind) == before
    assert await delete(api, kind, id) == [f"{_noun(kind)}_NOT_FOUND"]
    # The key still stands for what it created.
    assert await create(api, kind, idempotencyKey="k") == {kind.field: None, "replayed": True, "errors": []}
    assert made(api, kind) == before


@every_kind
async def test_another_project_neither_sees_nor_deletes_it(api: Api, kind: Kind):
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    id = (await create(api, kind))[kind.field]["id"]

    assert id not in await listed(api, kind, token=stranger)
    assert await delete(api, kind, id, token=stranger) == [f"{_noun(kind)}_NOT_FOUND"]

    assert await delete(api, kind, id) == []


@every_kind
async def test_after_a_lost_response_the_same_key_finds_it(api: Api, kind: Kind):
    before = made(api, kind)
    api.world.faults(Fault(FaultKind.LOST_ANSWER, routes=(kind.route,), times=1))
    lost = await send(api, kind, idempotencyKey="k")
    assert (lost.error["code"], lost.error["retryable"]) == ("NETWORK_ERROR", True)

    found = await create(api, kind, idempotencyKey="k")

    assert found["errors"] == []
    assert found["replayed"] is True
    (new,) = made(api, kind) - before
    assert found[kind.field]["id"].endswith(new)
    assert await delete(api, kind, found[kind.field]["id"]) == []


@every_kind
async def test_a_create_that_never_arrived_is_sent_again_when_it_can_no_longer_take_effect(api: Api, kind: Kind):
    before = made(api, kind)
    api.world.faults(Fault(FaultKind.DROP, routes=(kind.route,), times=1))
    assert (await send(api, kind, idempotencyKey="k")).error["code"] == "NETWORK_ERROR"
    early = await create(api, kind, idempotencyKey="k")
    assert [error["code"] for error in early["errors"]] == ["CREATION_NOT_CONFIRMED"]
    assert made(api, kind) == before

    await api.world.execute("UPDATE provider_object SET asked_at = asked_at - interval '61 seconds'")
    found = await create(api, kind, idempotencyKey="k")

    assert found["errors"] == []
    assert len(made(api, kind) - before) == 1
    assert await delete(api, kind, found[kind.field]["id"]) == []


@every_kind
@pytest.mark.parametrize("arrived", [True, False])
async def test_reconcile_settles_what_no_caller_repeats(api: Api, kind: Kind, arrived: bool):
    api.world.faults(Fault(FaultKind.LOST_ANSWER if arrived else FaultKind.DROP, routes=(kind.route,), times=1))
    before = made(api, kind)
    assert (await send(api, kind, idempotencyKey="k")).error["code"] == "NETWORK_ERROR"
    await api.world.execute("UPDATE provider_object SET asked_at = asked_at - interval '1 hour'")
    await api.world.catalog.registry_auths(fresh=True)

    await api.world.enqueue(Reconcile())
    await api.world.work_once()

    rows = [row[0] for row in await api.world.rows("SELECT novita_id FROM provider_object")]
    assert rows == list(made(api, kind) - before)
    assert len(rows) == arrived
    for id in rows:
        assert await delete(api, kind, id) == []


@every_kind
async def test_a_refusal_leaves_the_key_free(api: Api, kind: Kind):
    refusal = Fault(FaultKind.ERROR, routes=(kind.route,), times=1, status=400, reason="VALIDATOR_PARAM", message="no")
    api.world.faults(refusal)
    refused = await create(api, kind, idempotencyKey="k")
    assert [error["code"] for error in refused["errors"]] == ["PROVIDER_VALIDATION_FAILED"]
    assert await api.world.value("SELECT count(*) FROM provider_object") == 0

    accepted = await create(api, kind, idempotencyKey="k")

    assert (accepted["replayed"], accepted["errors"]) == (False, [])
    assert await delete(api, kind, accepted[kind.field]["id"]) == []


@every_kind
async def test_a_dry_run_calls_no_route_that_changes_anything(api: Api, kind: Kind):
    id = (await create(api, kind))[kind.field]["id"]
    calls = {route: count for route, count in api.world.simulator.world.calls.items() if route.startswith("POST")}

    assert (await create(api, kind, validateOnly=True, idempotencyKey="k"))["errors"] == []

    now = {route: count for route, count in api.world.simulator.world.calls.items() if route.startswith("POST")}
    assert now == calls
    assert await api.world.value("SELECT count(*) FROM idempotency_key") == 0
    assert await delete(api, kind, id) == []


async def test_what_was_created_elsewhere_is_seen_by_all_and_changed_by_the_servers_admin(api: Api):
    admin, _ = await api.world.new_token("default", Role.ADMIN)
    network = KINDS[2]
    await api.world.novita.create_network(cluster_id="as-sgp-2", name="theirs")
    (id,) = [key for key, each in api.world.simulator.world.table("network").items() if each["name"] == "theirs"]
    await api.world.new_project("team")
    operator, _ = await api.world.new_token("team", Role.ADMIN)
    await api.server.runtime.catalog.networks(fresh=True)

    assert f"net_{id}" in await listed(api, network, token=operator)
    assert await delete(api, network, f"net_{id}", token=operator) == ["NOT_CREATED_HERE"]
    assert await delete(api, network, f"net_{id}", token=admin) == []


def _noun(kind: Kind) -> str:
    return {"registryAuth": "REGISTRY_AUTH"}.get(kind.field, kind.field.upper())
