"""What is special about each kind of object at the provider."""

import logging
from typing import Any

import pytest
from structlog.testing import capture_logs

from server.enums import InstanceStatus, Role
from tests.server.account.test_objects import KINDS, create, delete
from tests.support.api import Api
from tests.support.waiting import until

AUTH, TEMPLATE, NETWORK, PREWARM = KINDS
SECRET = "hunter22hunter"


SHOWN = {
    "updateTemplate": "template { name image entrypoint tools { name port } minCudaVersion env { key value } }",
    "updateNetwork": "network { name region status }",
    "updatePrewarm": "prewarm { note status }",
}


async def ask(api: Api, mutation: str, **input: Any) -> dict[str, Any]:
    document = f"""mutation ($input: {mutation[0].upper() + mutation[1:]}Input!) {{
        {mutation}(input: $input) {{ {SHOWN[mutation]} errors {{ code path }} }} }}"""
    return (await api.ask(document, input=input)).data[mutation]


async def test_the_password_reaches_the_provider_and_nothing_else(api: Api, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with capture_logs() as lines:
        made = await create(api, AUTH, idempotencyKey="k")
    (stored,) = [each for each in api.world.simulator.world.table("auth").values() if each["name"] == "r.example.test"]
    assert stored["password"] == SECRET

    names = await api.world.rows(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace"
    )
    kept = ""
    for (name,) in names:
        kept += "".join(row[0] for row in await api.world.rows(f'SELECT to_jsonb(t)::text FROM "{name}" AS t'))
    assert "r.example.test" in kept
    assert SECRET not in kept + str(lines) + caplog.text + str(made)
    await delete(api, AUTH, made["registryAuth"]["id"])


async def test_a_create_that_names_an_unknown_credential_is_refused_at_once(api: Api):
    payload = await api.create(registryAuthId="nothing")
    assert [(e["code"], e["path"]) for e in payload["errors"]] == [
        ("REGISTRY_AUTH_NOT_FOUND", ["input", "registryAuthId"])
    ]


async def test_another_projects_objects_can_not_be_used_in_a_create_or_a_quote(api: Api):
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    auth = (await create(api, AUTH))["registryAuth"]["id"]
    template = (await create(api, TEMPLATE))["template"]["id"]
    network = (await create(api, NETWORK))["network"]["id"]
    wanted = {"name": "x", "productName": "RTX 4090 24GB"}
    for fields, code in (
        ({"image": "nginx", "registryAuthId": auth}, "REGISTRY_AUTH_NOT_FOUND"),
        ({"templateId": template}, "TEMPLATE_NOT_FOUND"),
        ({"image": "nginx", "networkId": network}, "NETWORK_NOT_FOUND"),
    ):
        for document in (
            "mutation ($input: CreateInstanceInput!) { it: createInstance(input: $input) { errors { code } } }",
            "query ($input: QuoteInput!) { it: quote(input: $input) { errors { code } } }",
        ):
            theirs = (await api.ask(document, token=stranger, input={**wanted, **fields})).data["it"]
            assert [error["code"] for error in theirs["errors"]] == [code]
            own = (await api.ask(document, input={**wanted, **fields, "validateOnly": True})).data["it"]
            assert own["errors"] == []
    for kind, id in ((TEMPLATE, template), (NETWORK, network), (AUTH, auth)):
        assert await delete(api, kind, id) == []


async def test_a_credential_in_use_is_not_deleted(api: Api):
    auth = (await create(api, AUTH))["registryAuth"]["id"]
    template = (await create(api, TEMPLATE, registryAuthId=auth))["template"]["id"]
    assert await delete(api, AUTH, auth) == ["REGISTRY_AUTH_IN_USE"]
    assert await delete(api, TEMPLATE, template) == []
    assert await delete(api, AUTH, auth) == []


async def test_a_template_keeps_what_a_change_leaves_out_and_serves_a_create(api: Api):
    made = await create(
        api,
        TEMPLATE,
        ports=[{"port": 80}],
        env=[{"key": "A", "value": "1"}],
        tools=[{"name": "JUPYTER"}],
        minCudaVersion="12.4",
    )
    id = made["template"]["id"]

    changed = await ask(api, "updateTemplate", id=id, image="nginx:1.28", entrypoint="/run", env=[])

    assert changed["errors"] == []
    assert changed["template"] == {
        "name": "mine",
        "image": "nginx:1.28",
        "entrypoint": "/run",
        "tools": [{"name": "JUPYTER", "port": 8888}],
        "minCudaVersion": "12.4",
        "env": [],
    }
    accepted = await api.create(image=None, templateId=id)
    assert accepted["errors"] == []
    row = await api.world.one("SELECT id, image, min_cuda_version FROM instance")
    assert (row["image"], row["min_cuda_version"]) == ("nginx:1.28", "12.4")
    await api.world.work_until_status(row["id"], InstanceStatus.READY)
    assert await delete(api, TEMPLATE, id) == []


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"name": " "}, "INVALID_TEMPLATE_NAME", "name"),
        ({"image": "i" * 501}, "INVALID_IMAGE", "image"),
        ({"ports": [{"port": port} for port in range(1, 12)]}, "INVALID_PORT", "ports"),
        ({"env": [{"key": "A", "value": "1"}] * 2}, "INVALID_ENV", "env"),
        ({"tools": [{"name": "OTHER"}]}, "INVALID_TOOL", "tools"),
        ({"minCudaVersion": "new"}, "INVALID_MIN_CUDA_VERSION", "minCudaVersion"),
        ({"rootfsSizeGb": 5}, "INVALID_ROOTFS_SIZE", "rootfsSizeGb"),
        ({"readme": "r" * 102_401}, "INVALID_README", "readme"),
        ({"registryAuthId": "nothing"}, "REGISTRY_AUTH_NOT_FOUND", "registryAuthId"),
    ],
)
async def test_a_template_is_checked_like_the_instance_it_is_for(
    api: Api, fields: dict[str, Any], code: str, field: str
):
    payload = await create(api, TEMPLATE, **fields)
    assert [(error["code"], error["path"][1]) for error in payload["errors"]] == [(code, field)]


async def test_a_network_is_renamed_and_kept_while_instances_are_in_it(api: Api):
    id = (await create(api, NETWORK))["network"]["id"]
    renamed = await ask(api, "updateNetwork", id=id, name="wan")
    assert (renamed["network"]["name"], renamed["network"]["region"]) == ("wan", "AS-SGP-02")
    api.world.stock("as-sgp-2", 16)  # tests before may have left machines that hold all of it
    assert (await api.create(networkId=id))["errors"] == []
    row = await api.world.one("SELECT id FROM instance")
    await api.world.work_until_status(row["id"], InstanceStatus.READY)

    assert await delete(api, NETWORK, id) == ["PROVIDER_VALIDATION_FAILED"]

    operation = await api.world.delete(row["id"])
    await api.world.work_until_over(operation)

    async def is_deleted() -> bool:
        return await delete(api, NETWORK, id) == []

    await until(is_deleted)  # it takes the provider a moment to forget the machine


async def test_nodes_are_loaded_by_id_and_only_for_their_project(api: Api):
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    network = (await create(api, NETWORK))["network"]["id"]
    prewarm = (await create(api, PREWARM))["prewarm"]["id"]
    document = "query ($ids: [ID!]!) { nodes(ids: $ids) { id __typename } }"
    found = (await api.ask(document, ids=[network, prewarm])).data["nodes"]
    assert found == [{"id": network, "__typename": "Network"}, {"id": prewarm, "__typename": "Prewarm"}]
    assert (await api.ask(document, token=stranger, ids=[network, prewarm])).data["nodes"] == [None, None]
    assert await delete(api, NETWORK, network) == await delete(api, PREWARM, prewarm) == []


async def test_a_prewarm_has_a_note_and_counts_in_the_quota(api: Api):
    quota = "{ prewarmQuota { used limit gbPerImage } }"
    before = (await api.ask(quota)).data["prewarmQuota"]
    id = (await create(api, PREWARM, note="first"))["prewarm"]["id"]
    assert (await api.ask(quota)).data["prewarmQuota"] == {**before, "used": before["used"] + 1}
    assert (await ask(api, "updatePrewarm", id=id, note="second"))["prewarm"]["note"] == "second"
    assert await delete(api, PREWARM, id) == []
