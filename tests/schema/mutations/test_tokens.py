"""Tokens and projects: who may make them, for whom, and what a secret is good for."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from server.clock import now
from server.enums import Role
from tests.support.api import Api
from tests.support.api_server import serving, until_tailed
from tests.support.waiting import until

CREATE = """
mutation ($input: CreateTokenInput!) { createToken(input: $input) {
  secret token { id name role hint expiresAt revokedAt lastUsedAt project { name } createdBy { name } }
  errors { __typename code path } } }"""
REVOKE = """
mutation ($id: ID!) { revokeToken(input: {id: $id}) {
  token { id revokedAt revokedBy { id } } errors { __typename code path } } }"""
VIEWER = "{ viewer { role runsServer token { name role } project { id name } } }"
TOKENS = "query ($project: ID) { tokens(projectId: $project) { totalCount nodes { id name } } }"


@pytest.fixture
async def admin(api: Api) -> str:
    return (await api.world.new_token("default", Role.ADMIN))[0]


@pytest.fixture
async def stranger(api: Api) -> str:
    """An ADMIN of another project."""
    return (await api.world.new_token("theirs", Role.ADMIN))[0]


async def create(api: Api, token: str, **input: Any) -> dict[str, Any]:
    return (await api.ask(CREATE, token=token, input={"name": "ci", **input})).data["createToken"]


async def project_of(api: Api, token: str) -> str:
    return (await api.ask(VIEWER, token=token)).data["viewer"]["project"]["id"]


async def test_a_made_token_works_at_once_and_says_who_made_it(api: Api, admin: str):
    made = await create(api, admin, role="READER")

    assert made["errors"] == []
    token = made["token"]
    assert (token["name"], token["role"], token["project"]) == ("ci", "READER", {"name": "default"})
    assert (token["hint"], token["createdBy"]) == (made["secret"][-4:], {"name": "test"})
    viewer = (await api.ask(VIEWER, token=made["secret"])).data["viewer"]
    assert (viewer["role"], viewer["runsServer"]) == ("READER", False)
    assert viewer["token"] == {"name": "ci", "role": "READER"}


async def test_a_project_has_so_many_valid_tokens_and_no_more(api: Api, admin: str, stranger: str):
    async with serving(api.server.runtime.database_url, api.server.simulator, tokens_per_project=4) as server:

        async def create_another(token: str) -> dict[str, Any]:
            return (await server.ask(CREATE, token=token, variables={"input": {"name": "ci"}})).data["createToken"]

        # Only `admin` is left as a valid token of its project.
        await api.world.execute("UPDATE token SET revoked_at = now() WHERE role <> 'ADMIN'")
        made = await asyncio.gather(*(create_another(admin) for _ in range(8)))
        codes = [error["code"] for payload in made for error in payload["errors"]]
        assert codes == ["TOO_MANY_TOKENS"] * 5
        assert (await create_another(stranger))["errors"] == []

        usable = next(payload["token"]["id"] for payload in made if payload["token"])
        assert (await server.ask(REVOKE, token=admin, variables={"id": usable})).data["revokeToken"]["errors"] == []
        assert (await create_another(admin))["errors"] == []


async def test_the_secret_is_shown_once_and_never_stored(api: Api, admin: str):
    made = await create(api, admin)

    row = await api.world.one("SELECT * FROM token WHERE name = 'ci'")
    assert made["secret"] not in str(dict(row))
    again = await api.ask("query ($id: ID!) { node(id: $id) { ... on Token { name hint } } }", id=made["token"]["id"])
    assert made["secret"] not in str(again.body)
    assert again.data["node"]["hint"] == made["secret"][-4:]


async def test_a_revoked_token_opens_nothing_from_then_on(api: Api, admin: str):
    made = await create(api, admin)
    assert (await api.ask(VIEWER, token=made["secret"])).status == 200

    gone = (await api.ask(REVOKE, token=admin, id=made["token"]["id"])).data["revokeToken"]

    assert gone["errors"] == []
    assert gone["token"]["revokedAt"] is not None
    assert (await api.ask(VIEWER, token=made["secret"])).error["code"] == "UNAUTHENTICATED"
    again = (await api.ask(REVOKE, token=admin, id=made["token"]["id"])).data["revokeToken"]
    assert again == gone  # not moved to a later time


async def test_its_sockets_are_closed(api: Api, admin: str):
    made = await create(api, admin, role="READER")
    url, quick = api.server.runtime.database_url, {"socket_token_check": timedelta(milliseconds=100)}
    async with (
        serving(url, api.server.simulator, **quick) as server,
        server.watching("subscription { fleetStats { total } }", token=made["secret"]) as socket,
    ):
        assert (await socket.next("fleetStats"))["total"] == 0
        await api.ask(REVOKE, token=admin, id=made["token"]["id"])
        assert await socket.close_code() == 4403


@pytest.mark.parametrize(
    ("input", "code", "path"),
    [
        ({"name": ""}, "INVALID_TOKEN_NAME", ["input", "name"]),
        ({"name": " "}, "INVALID_TOKEN_NAME", ["input", "name"]),
        ({"name": "a\u0000b"}, "INVALID_TOKEN_NAME", ["input", "name"]),
        ({"name": "x" * 101}, "INVALID_TOKEN_NAME", ["input", "name"]),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, "INVALID_EXPIRY", ["input", "expiresAt"]),
        ({"projectId": "prj_" + "0" * 32}, "PROJECT_NOT_FOUND", ["input", "projectId"]),
        ({"projectId": "nonsense"}, "PROJECT_NOT_FOUND", ["input", "projectId"]),
    ],
)
async def test_an_invalid_token_input_is_refused_and_leaves_nothing(
    api: Api, admin: str, input: dict[str, Any], code: str, path: list[str]
):
    before = await api.world.value("SELECT count(*) FROM token")
    refused = await create(api, admin, **input)
    assert [(each["code"], each["path"]) for each in refused["errors"]] == [(code, path)]
    assert (refused["token"], refused["secret"]) == (None, None)
    assert await api.world.value("SELECT count(*) FROM token") == before


async def test_a_token_never_outlives_the_one_that_made_it(api: Api, admin: str):
    soon = now() + timedelta(hours=1)
    passing = await create(api, admin, role="ADMIN", expiresAt=soon.isoformat())

    heir = await create(api, passing["secret"], name="heir")
    late = await create(api, passing["secret"], name="late", expiresAt=(soon + timedelta(days=1)).isoformat())

    assert heir["token"]["expiresAt"] == passing["token"]["expiresAt"]
    assert late["errors"][0]["code"] == "INVALID_EXPIRY"


async def test_an_admin_of_a_project_rules_over_that_one_alone(api: Api, admin: str, stranger: str):
    ours = await project_of(api, admin)
    own = await create(api, stranger, name="own")
    assert own["token"]["project"] == {"name": "theirs"}

    # Exactly like a project that there is not.
    for project in (ours, "prj_" + "0" * 32):
        refused = await create(api, stranger, projectId=project)
        assert refused["errors"] == [
            {"__typename": "NotFoundError", "code": "PROJECT_NOT_FOUND", "path": ["input", "projectId"]}
        ]
        assert (await api.ask(TOKENS, token=stranger, project=project)).data["tokens"]["totalCount"] == 0
    mine = (await api.ask("{ viewer { token { id } } }")).data["viewer"]["token"]["id"]
    refused = (await api.ask(REVOKE, token=stranger, id=mine)).data["revokeToken"]
    assert refused["errors"][0]["code"] == "TOKEN_NOT_FOUND"
    names = (await api.ask("{ projects { totalCount nodes { name } } }", token=stranger)).data["projects"]
    assert names == {"totalCount": 1, "nodes": [{"name": "theirs"}]}
    forbidden = await api.ask('mutation { createProject(input: {name: "x"}) { project { id } } }', token=stranger)
    assert forbidden.error["code"] == "FORBIDDEN"


async def test_server_admins_create_projects_and_their_first_tokens(api: Api, admin: str):
    document = (
        "mutation ($name: String!) { createProject(input: {name: $name}) { project { id name } errors { code } } }"
    )
    made = (await api.ask(document, token=admin, name="shop")).data["createProject"]
    twice = (await api.ask(document, token=admin, name="shop")).data["createProject"]
    first = await create(api, admin, name="first", role="ADMIN", projectId=made["project"]["id"])

    assert twice["errors"] == [{"code": "PROJECT_NAME_TAKEN"}]
    viewer = (await api.ask(VIEWER, token=first["secret"])).data["viewer"]
    assert (viewer["project"], viewer["runsServer"]) == (made["project"], False)
    # The token's creator is not visible to the project.
    tokens = "{ tokens { nodes { name createdBy { name } } } }"
    assert (await api.ask(tokens, token=first["secret"])).data["tokens"]["nodes"] == [
        {"name": "first", "createdBy": None}
    ]
    listed = (await api.ask(TOKENS, token=admin, project=made["project"]["id"])).data["tokens"]
    assert (listed["totalCount"], listed["nodes"][0]["name"]) == (1, "first")
    node = "query ($id: ID!) { node(id: $id) { ... on Project { name } } }"
    assert (await api.ask(node, token=admin, id=made["project"]["id"])).data["node"] == {"name": "shop"}
    assert (await api.ask(node, id=made["project"]["id"])).data["node"] is None
    node = "query ($id: ID!) { node(id: $id) { ... on Token { name } } }"
    assert (await api.ask(node, token=admin, id=first["token"]["id"])).data["node"] == {"name": "first"}
    assert (await api.ask(node, id=first["token"]["id"])).data["node"] is None


async def test_tokens_are_listed_by_role_and_by_whether_they_are_good(api: Api, admin: str):
    for name, role in (("a", "READER"), ("b", "READER"), ("c", "OPERATOR")):
        made = await create(api, admin, name=name, role=role)
        if name == "a":
            await api.ask(REVOKE, token=admin, id=made["token"]["id"])
    document = "query ($filter: TokenFilter, $first: Int!, $after: String) { tokens(filter: $filter, first: $first, after: $after) { totalCount edges { cursor } nodes { name } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }"  # noqa: E501

    async def names(**filter: Any) -> list[str]:
        page = (await api.ask(document, token=admin, filter=filter, first=50)).data["tokens"]
        assert page["totalCount"] == len(page["nodes"])
        return [node["name"] for node in page["nodes"]]

    assert await names(roles=["READER"]) == ["b", "a"]
    assert await names(roles=["READER"], valid=True) == ["b"]
    assert await names(valid=False) == ["a"]
    one = (await api.ask(document, token=admin, first=2)).data["tokens"]
    two = (await api.ask(document, token=admin, first=100, after=one["pageInfo"]["endCursor"])).data["tokens"]
    assert [node["name"] for node in one["nodes"] + two["nodes"]][:3] == ["c", "b", "a"]
    assert (one["pageInfo"]["hasPreviousPage"], two["pageInfo"]["hasPreviousPage"]) == (False, True)
    assert one["pageInfo"]["startCursor"] == one["edges"][0]["cursor"]


@pytest.mark.parametrize("role", [Role.READER, Role.OPERATOR])
async def test_below_admin_nothing_of_this_is_for_you(api: Api, role: Role):
    token, caller = await api.world.new_token("default", role)
    documents = [
        'mutation { createToken(input: {name: "x"}) { secret } }',
        f'mutation {{ revokeToken(input: {{id: "tok_{caller.token_id.hex}"}}) {{ token {{ id }} }} }}',
        'mutation { createProject(input: {name: "x"}) { project { id } } }',
        "{ tokens { totalCount } }",
        "{ projects { totalCount } }",
    ]
    for document in documents:
        assert (await api.ask(document, token=token)).error["code"] == "FORBIDDEN"
    assert (await api.ask(VIEWER, token=token)).status == 200


async def test_the_operation_and_its_events_name_the_caller(api: Api, admin: str):
    made = await create(api, admin, name="backend of the shop")
    document = """mutation { createInstance(input: {name: "n", productName: "RTX 4090 24GB", image: "nginx"}) {
        instance { id } operation { requestedBy { id name role } } } }"""
    created = (await api.ask(document, token=made["secret"])).data["createInstance"]

    assert created["operation"]["requestedBy"] == {
        "id": made["token"]["id"],
        "name": "backend of the shop",
        "role": "OPERATOR",
    }
    await until_tailed(api.server, 1)
    events = "query ($ids: [ID!]) { events(filter: {ids: $ids}) { nodes { causedBy { name } } } }"

    async def causes() -> list[Any]:
        return (await api.ask(events, ids=[created["instance"]["id"]])).data["events"]["nodes"]

    async def are_there() -> bool:
        return len(await causes()) == 2

    await until(are_there)
    assert await causes() == [{"causedBy": {"name": "backend of the shop"}}] * 2
