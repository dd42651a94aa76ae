"""Who sees which environment variables."""

from typing import Any

import pytest

from server.encryption import Cipher
from server.enums import InstanceStatus, Role
from tests.support.api import Api

READ = "query ($id: ID!) { instance(id: $id) { env { key value secret } } }"
TEMPLATE = '{ template(id: "107673") { env { key value secret } } }'
GIVEN = [
    {"key": "HF_TOKEN", "value": "one"},
    {"key": "MODEL", "value": "two"},
    {"key": "LICENCE", "value": "three", "secret": True},
    {"key": "MAX_TOKENS", "value": "four", "secret": False},
]


def shown(key: str, value: str | None, *, secret: bool) -> dict[str, Any]:
    return {"key": key, "value": value, "secret": secret}


async def env_of(api: Api, id: str, token: str) -> list[dict[str, Any]]:
    return (await api.ask(READ, token=token, id=id)).data["instance"]["env"]


async def test_secret_values_are_shown_to_no_role_and_others_from_operator_on(api: Api):
    id = (await api.create(env=GIVEN))["instance"]["id"]
    values = [shown("HF_TOKEN", None, secret=True), shown("LICENCE", None, secret=True)]

    for role in (Role.OPERATOR, Role.ADMIN):
        token, _ = await api.world.new_token(role=role)
        others = [shown("MAX_TOKENS", "four", secret=False), shown("MODEL", "two", secret=False)]
        assert await env_of(api, id, token) == values + others

    reader, _ = await api.world.new_token(role=Role.READER)
    others = [shown("MAX_TOKENS", None, secret=False), shown("MODEL", None, secret=False)]
    assert await env_of(api, id, reader) == values + others


async def test_values_of_older_rows_are_secret_by_their_names(api: Api):
    row = await api.world.put(env={"HF_TOKEN": "one", "MODEL": "two"}, secret_env=None)

    env = await env_of(api, f"inst_{row.id.hex}", api.token)

    assert env == [shown("HF_TOKEN", None, secret=True), shown("MODEL", "two", secret=False)]


async def test_a_deleted_instance_has_no_variables(api: Api):
    created = await api.create(env=GIVEN)
    row_id = await api.world.value("SELECT id FROM instance")
    await api.delete(created["instance"]["id"])
    await api.world.work_until_status(row_id, InstanceStatus.DELETED)

    assert await env_of(api, created["instance"]["id"], api.token) == []


async def test_variables_of_templates_follow_the_same_rule(api: Api):
    reader, _ = await api.world.new_token(role=Role.READER)

    assert (await api.ask(TEMPLATE)).data["template"]["env"] == [shown("HF_HOME", "/workspace/hf", secret=False)]
    seen = (await api.ask(TEMPLATE, token=reader)).data["template"]["env"]
    assert seen == [shown("HF_HOME", None, secret=False)]


async def test_a_value_without_its_key_is_an_error_and_not_an_empty_value(api: Api):
    sealed = Cipher((b"a key that this server does not have",)).seal("two")
    row = await api.world.put(env={"HF_TOKEN": sealed, "MODEL": sealed}, secret_env=["HF_TOKEN"])

    answer = await api.ask(READ, id=f"inst_{row.id.hex}")

    assert answer.body["data"]["instance"]["env"] == [
        shown("HF_TOKEN", None, secret=True),
        shown("MODEL", None, secret=False),
    ]
    assert (answer.error["code"], answer.error["retryable"]) == ("ENCRYPTION_KEY_MISSING", True)


@pytest.mark.parametrize("secret", [True, False])
async def test_a_retry_that_says_it_otherwise_is_another_request(api: Api, secret: bool):
    first = await api.create(env=[{"key": "MODEL", "value": "two"}], idempotencyKey="k")
    assert first["errors"] == []

    same = await api.create(env=[{"key": "MODEL", "value": "two", "secret": None}], idempotencyKey="k")
    other = await api.create(env=[{"key": "MODEL", "value": "two", "secret": secret}], idempotencyKey="k")

    assert same["replayed"]
    assert same["instance"] == first["instance"]
    assert [error["code"] for error in other["errors"]] == ["IDEMPOTENCY_KEY_REUSED"]
