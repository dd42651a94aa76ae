"""GraphQL over HTTP: authentication, results of mutations, and how internal errors appear."""

from datetime import timedelta

import pytest
from gql import Client, gql
from gql.transport.aiohttp import AIOHTTPTransport

from server.enums import InstanceStatus, Role
from tests.support.api import Api
from tests.support.waiting import until

CREATE = 'mutation { createInstance(input: {name: "x", productName: "RTX 4090 24GB", image: "i"}) { replayed } }'
NOTHING = {"instance": 0, "operation": 0, "attempt": 0, "job": 0, "event": 0, "idempotency_key": 0}


async def left_behind(api: Api) -> dict[str, int]:
    return {name: count for name, count in (await api.world.counts()).items() if name != "made"}


async def test_a_client_creates_an_instance_and_reads_it(api: Api):
    transport = AIOHTTPTransport(
        url=f"http://{api.server.address}/graphql", headers={"Authorization": f"Bearer {api.token}"}
    )
    async with Client(transport=transport, fetch_schema_from_transport=True) as session:
        created = await session.execute(
            gql("""
                mutation {
                  createInstance(
                    input: {name: "first", productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}]}
                  ) {
                    instance { id status estimatedReadyAt ports { port type } }
                    operation { id kind status phase }
                    errors { code message path }
                  }
                }
            """)
        )
        payload = created["createInstance"]
        assert payload["errors"] == []
        assert payload["instance"]["status"] == "CREATING"
        assert payload["instance"]["ports"] == [{"port": 80, "type": "http"}]
        assert (payload["operation"]["kind"], payload["operation"]["status"]) == ("CREATE", "QUEUED")

        query = gql("query ($id: ID!) { instance(id: $id) { name openOperation { id } } }")
        query.variable_values = {"id": payload["instance"]["id"]}
        read = await session.execute(query)
        assert read["instance"] == {"name": "first", "openOperation": {"id": payload["operation"]["id"]}}


@pytest.mark.parametrize("token", [None, "", "pl_wrong"])
async def test_without_a_good_token_nothing_is_answered_and_nothing_happens(api: Api, token: str | None):
    answer = await api.server.ask(CREATE, token=token)

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert (answer.error["code"], answer.error["retryable"]) == ("UNAUTHENTICATED", False)
    assert answer.error["requestId"] == answer.headers["x-request-id"]
    assert await left_behind(api) == NOTHING


@pytest.mark.parametrize("change", ["revoked_at = now()", "expires_at = now() - interval '1 second'"])
async def test_a_token_that_is_over_is_refused(api: Api, change: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.auth.tokens.CALLER_TTL", timedelta(milliseconds=300))
    assert (await api.ask("{ instances { totalCount } }")).data == {"instances": {"totalCount": 0}}
    await api.world.execute(f"UPDATE token SET {change}")

    async def is_refused() -> bool:
        return (await api.ask("{ instances { totalCount } }")).status == 401

    await until(is_refused)  # without a notification: a token is cached for so long


async def test_a_reader_may_read_and_change_nothing(api: Api):
    instance = await api.world.put()
    reader, _ = await api.world.new_token(role=Role.READER)
    shown = f"inst_{instance.id.hex}"

    assert (await api.ask("{ instances { totalCount } }", token=reader)).data == {"instances": {"totalCount": 1}}
    for document in (CREATE, f'mutation {{ deleteInstance(input: {{id: "{shown}"}}) {{ errors {{ code }} }} }}'):
        answer = await api.server.ask(document, token=reader)
        assert (answer.error["code"], answer.error["retryable"]) == ("FORBIDDEN", False)
        assert answer.error["message"] == "This needs a token with the role OPERATOR."
    assert await left_behind(api) == {**NOTHING, "instance": 1}
    assert (await api.world.instance(instance.id))["status"] == "READY"


async def test_all_problems_of_an_input_come_together_as_typed_errors(api: Api):
    payload = await api.create(
        name="",
        productName=" ",
        image=None,
        gpuCount=9,
        ports=[{"port": 0}],
        env=[{"key": "A", "value": "1"}, {"key": "A", "value": "2"}],
        maxHourlyPrice={"amountMicros": 5, "currency": "EUR"},
    )

    assert (payload["instance"], payload["operation"], payload["replayed"]) == (None, None, False)
    assert {each["__typename"] for each in payload["errors"]} == {"ValidationError"}
    assert [(each["code"], each["path"]) for each in payload["errors"]] == [
        ("INVALID_INSTANCE_NAME", ["input", "name"]),
        ("INVALID_PRODUCT_NAME", ["input", "productName"]),
        ("INVALID_TEMPLATE_ID", ["input", "templateId"]),
        ("INVALID_GPU_COUNT", ["input", "gpuCount"]),
        ("INVALID_MAX_HOURLY_PRICE", ["input", "maxHourlyPrice"]),
        ("INVALID_PORT", ["input", "ports", "0"]),
        ("INVALID_MAX_HOURLY_PRICE", ["input", "maxHourlyPrice", "currency"]),
        ("INVALID_ENV", ["input", "env"]),
    ]
    assert await left_behind(api) == NOTHING


async def test_a_refusal_of_the_domain_is_a_type_in_the_payload(api: Api):
    await api.world.put(name="web")
    (error,) = (await api.create(name="web"))["errors"]
    assert (error["__typename"], error["code"], error["path"]) == (
        "ValidationError",
        "INSTANCE_NAME_TAKEN",
        ["input", "name"],
    )

    dear = {"maxHourlyPrice": {"amountMicros": 1000}, "billing": "SPOT", "regions": ["US-CA-06"]}
    (error,) = (await api.create(name="dear", **dear))["errors"]
    assert (error["__typename"], error["code"]) == ("NoCapacity", "PRICE_ABOVE_MAX")
    assert error["attempts"] == [{"region": "US-CA-06", "billingMode": "SPOT", "code": "PRICE_ABOVE_MAX"}]
    assert await left_behind(api) == {**NOTHING, "instance": 1}


async def test_the_same_key_is_replayed_and_with_another_input_refused(api: Api):
    first = await api.create(idempotencyKey="k")
    again = await api.create(idempotencyKey="k")
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert again["instance"]["id"] == first["instance"]["id"]
    assert again["operation"]["id"] == first["operation"]["id"]

    other = await api.create(idempotencyKey="k", gpuCount=2)
    assert other["instance"] is None
    assert [each["code"] for each in other["errors"]] == ["IDEMPOTENCY_KEY_REUSED"]


async def test_a_delete_is_accepted_and_a_second_one_of_what_is_gone_says_why_not(api: Api):
    instance = await api.world.put()
    payload = await api.delete(f"inst_{instance.id.hex}")
    assert (payload["instance"]["status"], payload["operation"]["kind"]) == ("DELETING", "DELETE")
    assert payload["errors"] == []

    gone = await api.world.put(InstanceStatus.DELETED)
    (error,) = (await api.delete(f"inst_{gone.id.hex}"))["errors"]
    assert error == {
        "__typename": "InvalidTransition",
        "code": "INSTANCE_DELETED",
        "path": [],
        "current": "DELETED",
        "allowed": [],
    }


UNKNOWN_IDS = ["", "nonsense", "inst_", "inst_" + "0" * 32, "inst_" + "z" * 32, "op_" + "0" * 32, "\u0000", "ü"]


@pytest.mark.parametrize("id", UNKNOWN_IDS)
async def test_an_unknown_id_is_null_when_read_and_not_found_when_changed(api: Api, id: str):
    found = await api.ask("query ($id: ID!) { instance(id: $id) { id } operation(id: $id) { id } }", id=id)
    assert found.data == {"instance": None, "operation": None}
    (error,) = (await api.delete(id))["errors"]
    assert (error["__typename"], error["code"], error["path"]) == (
        "NotFoundError",
        "INSTANCE_NOT_FOUND",
        ["input", "id"],
    )


@pytest.mark.parametrize("name", ["nobody", "", "\u0000", "n" * 5000])
async def test_an_unknown_name_is_null(api: Api, name: str):
    found = await api.ask("query ($name: String!) { instanceByName(name: $name) { id } }", name=name)
    assert found.data == {"instanceByName": None}


@pytest.mark.parametrize(
    "body",
    [
        rb'{"query": "query ($name: String!) { instanceByName(name: $name) { id } }", "variables": {"name": "\ud800"}}',
        rb'{"query": "{ instanceByName(name: \"\udfff\") { id } }"}',
    ],
)
async def test_half_a_character_is_not_json(api: Api, body: bytes):
    """JSON can escape lone surrogates, which UTF-8 can't encode; they could be neither stored nor returned."""
    answer = await api.server.ask("", token=api.token, raw=body)
    assert (answer.status, answer.error["code"]) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("document", ["{", "{ nothing }", "query { instances(first: true) { totalCount } }"])
async def test_a_document_that_makes_no_sense_is_a_bad_request(api: Api, document: str):
    answer = await api.server.ask(document, token=api.token)
    assert {error["extensions"]["code"] for error in answer.body["errors"]} == {"BAD_REQUEST"}
    assert {error["extensions"]["requestId"] for error in answer.body["errors"]} == {answer.headers["x-request-id"]}


async def test_a_page_of_another_origin_gets_no_cors_permission(api: Api):
    async with api.server.http.options(
        f"http://{api.server.address}/graphql",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    ) as response:
        assert "access-control-allow-origin" not in response.headers


async def test_healthz_and_readyz_answer_without_a_token(api: Api):
    async with api.server.http.get(f"http://{api.server.address}/healthz") as response:
        assert (response.status, await response.json()) == (200, {"status": "alive"})
    async with api.server.http.get(f"http://{api.server.address}/readyz") as response:
        assert response.status == 200, await response.text()
        checks = (await response.json())["checks"]
        assert {name: checks[name] for name in ("database", "migrations", "events", "provider")} == {
            "database": "ok",
            "migrations": "ok",
            "events": "ok",
            "provider": "ok",
        }
        assert checks["workers"] == "no worker is alive; accepted work waits"
