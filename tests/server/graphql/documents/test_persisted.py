"""Persisted documents, sent by hash: learned from clients, or listed by the operator."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from schema.root import schema
from server.errors import StartupProblem
from server.graphql.documents.core_types import core_of
from server.graphql.documents.persisted import ApqCache, hash_of, read_persisted
from server.graphql.documents.store import DocumentStore
from tests.support.api import Api
from tests.support.api_server import Server, serving

QUERY = "query ($n: Int!) { instances(first: $n) { totalCount } }"
EMPTY = {"instances": {"totalCount": 0}}
RESPONSE = "application/graphql-response+json"


def apollo(hash: str, **more: Any) -> dict[str, Any]:
    """As Apollo's and urql's clients do it."""
    return {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": hash}}, "variables": {"n": 1}, **more}


def by_id(hash: str) -> dict[str, Any]:
    """As the persisted documents of GraphQL over HTTP have it."""
    return {"documentId": f"sha256:{hash}", "variables": {"n": 1}}


async def posted(server: Server, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    headers = {"authorization": f"Bearer {token}", "accept": RESPONSE}
    async with server.http.post(f"http://{server.address}/graphql", json=body, headers=headers) as response:
        return response.status, orjson.loads(await response.read())


async def got(server: Server, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    query = {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in body.items()}
    headers = {"authorization": f"Bearer {token}", "accept": RESPONSE}
    async with server.http.get(f"http://{server.address}/graphql?{urlencode(query)}", headers=headers) as response:
        return response.status, orjson.loads(await response.read())


def code_of(body: dict[str, Any]) -> str:
    return body["errors"][0]["extensions"]["code"]


async def test_an_unknown_hash_makes_clients_send_the_text(api: Api):
    async with serving(api.server.runtime.database_url, api.server.simulator) as server:
        for asked in (posted, got):
            for body in (apollo(hash_of(QUERY)), by_id(hash_of(QUERY))):
                status, answer = await asked(server, api.token, body)
                assert (status, code_of(answer)) == (400, "PERSISTED_QUERY_NOT_FOUND")
                assert answer["errors"][0]["message"] == "PersistedQueryNotFound"

        status, answer = await posted(server, api.token, apollo(hash_of(QUERY), query=QUERY))
        assert (status, answer["data"]) == (200, EMPTY)

        for asked in (posted, got):
            for body in (apollo(hash_of(QUERY)), by_id(hash_of(QUERY))):
                status, answer = await asked(server, api.token, body)
                assert (status, answer["data"]) == (200, EMPTY)


async def test_a_text_is_not_learned_under_a_hash_that_is_not_its_own(api: Api):
    wrong = hash_of("{ __typename }")
    status, answer = await posted(api.server, api.token, apollo(wrong, query=QUERY))
    assert (status, code_of(answer)) == (400, "PERSISTED_QUERY_HASH_MISMATCH")
    status, answer = await posted(api.server, api.token, apollo(wrong))
    assert code_of(answer) == "PERSISTED_QUERY_NOT_FOUND"


async def test_a_wrong_document_is_not_learned(api: Api):
    wrong = "{ nothing }"
    status, answer = await posted(api.server, api.token, apollo(hash_of(wrong), query=wrong))
    assert (status, code_of(answer)) == (400, "BAD_REQUEST")
    assert code_of((await posted(api.server, api.token, apollo(hash_of(wrong))))[1]) == "PERSISTED_QUERY_NOT_FOUND"


async def test_a_change_by_its_hash_needs_a_post_all_the_same(api: Api):
    change = 'mutation { deleteInstance(input: {id: "inst_x"}) { errors { code } } }'
    await posted(api.server, api.token, apollo(hash_of(change), query=change))
    assert (await got(api.server, api.token, apollo(hash_of(change))))[0] == 405


async def test_sockets_and_streams_know_what_http_has_learned(api: Api):
    async with serving(api.server.runtime.database_url, api.server.simulator) as server:
        async with server.socket(api.token) as socket:
            assert (await socket.receive())["type"] == "connection_ack"
            # graphql-ws clients send an empty query where there is only a hash.
            named = apollo(hash_of(QUERY), query="")
            await socket.send({"id": "1", "type": "subscribe", "payload": named})
            assert (await socket.error())["code"] == "PERSISTED_QUERY_NOT_FOUND"
            await posted(server, api.token, apollo(hash_of(QUERY), query=QUERY))
            await socket.send({"id": "1", "type": "subscribe", "payload": named})
            assert (await socket.receive())["payload"]["data"] == EMPTY
        headers = {"authorization": f"Bearer {api.token}", "accept": "text/event-stream"}
        url = f"http://{server.address}/graphql"
        async with server.http.post(url, json=by_id(hash_of(QUERY)), headers=headers) as response:
            assert b'"totalCount":0' in await response.read()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "list.graphql").write_text(QUERY + "\n")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "watch.graphql").write_text("subscription { fleetStats { total } }\n")
    return tmp_path


async def test_with_an_allow_list_nothing_else_is_answered(api: Api, folder: Path):
    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with serving(url, simulator, persisted_documents=folder, persisted_only=True) as server:
        for body in (apollo(hash_of(QUERY)), by_id(hash_of(QUERY)), {"query": QUERY, "variables": {"n": 1}}):
            status, answer = await posted(server, api.token, body)
            assert (status, answer["data"]) == (200, EMPTY)

        other = "{ __typename }"
        for body in (
            {"query": other},
            apollo(hash_of(other), query=other),
            by_id(hash_of(other)),
            {"query": QUERY + " "},
        ):
            status, answer = await posted(server, api.token, body)
            assert (status, code_of(answer)) == (403, "DOCUMENT_NOT_ALLOWED")

        async with server.socket(api.token) as socket:
            assert (await socket.receive())["type"] == "connection_ack"
            await socket.send(
                {"id": "1", "type": "subscribe", "payload": {"query": "subscription { jobStats { id } }"}}
            )
            assert (await socket.error())["code"] == "DOCUMENT_NOT_ALLOWED"
            named = by_id(hash_of("subscription { fleetStats { total } }"))
            await socket.send({"id": "2", "type": "subscribe", "payload": {"documentId": named["documentId"]}})
            assert (await socket.next("fleetStats")) == {"total": 0}


async def test_given_documents_are_known_from_the_start_and_others_may_still_come(api: Api, folder: Path):
    async with serving(api.server.runtime.database_url, api.server.simulator, persisted_documents=folder) as server:
        assert (await posted(server, api.token, by_id(hash_of(QUERY))))[1]["data"] == EMPTY
        assert (await posted(server, api.token, {"query": "{ __typename }"}))[0] == 200


@pytest.mark.parametrize(
    "manifest",
    [
        {hash_of(QUERY): QUERY},
        {f"sha256:{hash_of(QUERY)}": QUERY},
        {"some-other-id": QUERY},
        {
            "format": "apollo-persisted-query-manifest",
            "version": 1,
            "operations": [{"id": hash_of(QUERY), "body": QUERY}],
        },
    ],
)
def test_manifests_of_build_tools_are_read(tmp_path: Path, manifest: dict[str, Any]):
    file = tmp_path / "manifest.json"
    file.write_bytes(orjson.dumps(manifest))
    assert read_persisted(file) == {hash_of(QUERY): QUERY}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"nonsense", "neither a folder nor JSON"),
        (orjson.dumps({"0" * 64: QUERY}), "under a hash that is not its own"),
        (orjson.dumps({"x": 7}), "has no text for 'x'"),
        (orjson.dumps({"x": "{ nothing }"}), "Cannot query field 'nothing'"),
        (orjson.dumps({}), "names none"),
    ],
)
def test_an_invalid_allow_list_is_reported_at_start(tmp_path: Path, content: bytes, expected: str):
    file = tmp_path / "manifest.json"
    file.write_bytes(content)
    with pytest.raises(StartupProblem, match=expected):
        DocumentStore(core_of(schema), persisted=file, is_closed=True)


def test_a_missing_list_is_reported_at_start(tmp_path: Path):
    with pytest.raises(StartupProblem, match="can't be read"):
        DocumentStore(core_of(schema), persisted=tmp_path / "nowhere.json")
    with pytest.raises(StartupProblem, match="names none"):
        DocumentStore(core_of(schema), is_closed=True)


def test_learned_texts_are_bounded_by_their_length():
    learned = ApqCache(max_characters=100)
    for number in range(50):
        learned.keep(str(number), "x" * 30)
    assert [learned.find(str(number)) is not None for number in range(44, 50)] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]
