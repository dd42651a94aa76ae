"""The GraphQL-over-HTTP specification: accepted requests, media types and status codes."""

import gzip
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from tests.support.api import Api

RESPONSE = "application/graphql-response+json"
JSON = "application/json"
TYPENAME = {"query": "{ __typename }"}


@dataclass(frozen=True, slots=True)
class Got:
    status: int
    headers: Any
    body: Any

    @property
    def code(self) -> str:
        return self.body["errors"][0]["extensions"]["code"]

    @property
    def kind(self) -> str:
        return self.headers["content-type"]


async def sent(
    api: Api, body: Any = None, *, method: str = "POST", query: dict[str, str] | None = None, **headers: str | None
) -> Got:
    """Headers are given with underscores; None leaves one out that would be there."""
    sent = {"authorization": f"Bearer {api.token}", "accept": JSON}
    if method == "POST":
        sent["content-type"] = JSON
    for name, value in headers.items():
        if value is None:
            sent.pop(name.replace("_", "-"), None)
        else:
            sent[name.replace("_", "-")] = value
    raw = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
    url = f"http://{api.server.address}/graphql" + (f"?{urlencode(query)}" if query else "")
    skipped = {name for name in ("Accept", "Content-Type") if name.lower() not in sent}
    async with api.server.http.request(method, url, data=raw, headers=sent, skip_auto_headers=skipped) as response:
        content = await response.read()
        return Got(response.status, response.headers, orjson.loads(content) if content else None)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (JSON, JSON),
        (RESPONSE, RESPONSE),
        (f"{RESPONSE}, {JSON};q=0.9", RESPONSE),
        (f"{JSON};q=0.5, {RESPONSE};q=0.4", JSON),
        (f"{RESPONSE}; charset=utf-8, {JSON}; charset=utf-8", RESPONSE),
        ("*/*", JSON),
        ("application/*", JSON),
        (f"text/html, {RESPONSE};q=0.1", RESPONSE),
        (None, RESPONSE),
    ],
)
async def test_the_answer_has_the_form_that_the_client_likes_best(api: Api, accept: str | None, kind: str):
    got = await sent(api, TYPENAME, accept=accept)
    assert (got.status, got.kind) == (200, f"{kind}; charset=utf-8")
    assert got.body["data"] == {"__typename": "Query"}
    assert (got.headers["cache-control"], got.headers["x-request-id"][:4]) == ("no-store", "req_")


@pytest.mark.parametrize("accept", ["text/plain", "image/*", f"{JSON};q=0", "nonsense", ""])
async def test_a_request_without_an_acceptable_type_is_refused_with_the_list_of_types(api: Api, accept: str):
    got = await sent(api, TYPENAME, accept=accept)
    assert (got.status, got.code) == (406, "NOT_ACCEPTABLE")
    assert RESPONSE in got.body["errors"][0]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"query": "{"},
        {"query": "{ nothing }"},
        {"query": "query ($n: Int!) { instances(first: $n) { totalCount } }", "variables": {"n": "x"}},
        {"query": "query ($n: Int!) { instances(first: $n) { totalCount } }"},
        {"query": "query A { __typename } query B { __typename }"},
        {"query": "query A { __typename } query B { __typename }", "operationName": "C"},
        {"query": "query A { __typename }", "operationName": ""},
        {"query": "fragment F on Query { __typename }"},
        {"query": "subscription { fleetStats { total } }"},
        {"query": "type A { b: Int }"},
    ],
)
async def test_what_was_not_carried_out_has_no_data_and_a_status_in_the_newer_form(api: Api, body: dict[str, Any]):
    newer, older = await sent(api, body, accept=RESPONSE), await sent(api, body, accept=JSON)
    assert (newer.status, older.status) == (400, 200)
    for got in (newer, older):
        assert "data" not in got.body
        for error in got.body["errors"]:
            assert error["extensions"]["code"] in ("BAD_REQUEST", "NEEDS_STREAM")
            assert error["extensions"]["requestId"] == got.headers["x-request-id"]
            assert error["extensions"]["retryable"] is False


async def test_what_a_field_refuses_is_part_of_an_answer(api: Api):
    body = {"query": "{ __typename instances(first: 1000) { totalCount } }"}
    for accept in (JSON, RESPONSE):
        got = await sent(api, body, accept=accept)
        assert (got.status, got.body["data"]) == (200, None)
        assert got.body["errors"][0]["path"] == ["instances"]


async def test_a_subscription_is_refused_with_a_hint_to_the_right_transport(api: Api):
    got = await sent(api, {"query": "subscription { fleetStats { total } }"}, accept=RESPONSE)
    assert (got.status, got.code) == (400, "NEEDS_STREAM")
    assert "graphql-transport-ws" in got.body["errors"][0]["message"]
    assert "text/event-stream" in got.body["errors"][0]["message"]


async def test_the_named_one_of_several_operations_runs(api: Api):
    body = {"query": "query A { a: __typename } query B { b: __typename }", "operationName": "B"}
    assert (await sent(api, body)).body["data"] == {"b": "Query"}
    assert (await sent(api, method="GET", query=body)).body["data"] == {"b": "Query"}


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"null",
        b"7",
        b'"{ __typename }"',
        b"{",
        b'{"query": "{ __typename }"',
        b'{"query": "\xff\xfe"}',
        b'{"query": "{ __typename }"}\x00',
        b'\xef\xbb\xbf{"query": "{ __typename }"}',
        b'{"query": "{ __typename }", "variables": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"query": "{ __typename }", "variables": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
        b'{"query": NaN}',
        {},
        {"qeury": "{ __typename }"},
        {"query": None},
        {"query": ""},
        {"query": ["{ __typename }"]},
        {"query": 1},
        {**TYPENAME, "operationName": 1},
        {**TYPENAME, "operationName": {}},
        {**TYPENAME, "variables": []},
        {**TYPENAME, "variables": "{}"},
        {**TYPENAME, "variables": 0},
        {**TYPENAME, "extensions": []},
        {**TYPENAME, "extensions": "x"},
        {**TYPENAME, "extensions": False},
        {"documentId": 7},
        {"documentId": "nonsense"},
        {"extensions": {"persistedQuery": {"version": 2, "sha256Hash": "0" * 64}}},
        {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "X" * 64}}},
        {"extensions": {"persistedQuery": "0" * 64}},
    ],
)
@pytest.mark.parametrize("accept", [JSON, RESPONSE])
async def test_what_is_not_a_request_is_a_400(api: Api, body: Any, accept: str):
    got = await sent(api, body, accept=accept)
    assert (got.status, got.code) == (400, "BAD_REQUEST")
    assert got.body["errors"][0]["extensions"]["requestId"] == got.headers["x-request-id"]


@pytest.mark.parametrize("extra", [b'"query": "{ nothing }", ', b'"unknown": {"a": [1]}, ', b'"variables": null, '])
async def test_the_last_of_equal_names_counts_and_unknown_ones_do_not(api: Api, extra: bytes):
    got = await sent(api, b"{" + extra + b'"query": "{ __typename }"}')
    assert got.body["data"] == {"__typename": "Query"}


async def test_batches_are_refused_in_so_many_words(api: Api):
    got = await sent(api, [TYPENAME, TYPENAME])
    assert (got.status, got.body["errors"][0]["message"]) == (400, "Send one request at a time: batches are off.")


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/graphql",
        "application/json; charset=iso-8859-1",
        "application/jsonx",
    ],
)
async def test_only_json_in_utf8_is_read(api: Api, content_type: str | None):
    """Any web page may send the first four without a CORS preflight."""
    got = await sent(api, TYPENAME, content_type=content_type)
    assert (got.status, got.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_compressed_body_is_not_read(api: Api):
    got = await sent(api, gzip.compress(b'{"query": "{ __typename }"}'), content_encoding="gzip")
    assert (got.status, got.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'])
async def test_json_may_say_that_it_is_utf8(api: Api, content_type: str):
    assert (await sent(api, TYPENAME, content_type=content_type)).status == 200


async def test_a_query_may_be_sent_by_get(api: Api):
    query = {"query": "query Q($n: Int!) { instances(first: $n) { totalCount } }", "variables": '{"n": 5}'}
    got = await sent(api, method="GET", query={**query, "operationName": "Q", "extensions": "{}"})
    assert (got.status, got.body["data"]) == (200, {"instances": {"totalCount": 0}})
    # Nothing and no name are the same there.
    assert (await sent(api, method="GET", query={**query, "operationName": ""})).status == 200


async def test_a_mutation_may_not_be_sent_by_get(api: Api):
    mutation = 'mutation { deleteInstance(input: {id: "inst_x"}) { errors { code } } }'
    for accept in (JSON, RESPONSE, "text/event-stream"):
        got = await sent(api, method="GET", query={"query": mutation}, accept=accept)
        assert (got.status, got.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"query": ""},
        {"query": "{ __typename }", "variables": "nonsense"},
        {"query": "{ __typename }", "variables": "[]"},
        {"query": "{ __typename }", "extensions": "7"},
        {f"p{number}": "x" for number in range(50)},
    ],
)
async def test_an_address_that_is_not_a_request_is_a_400(api: Api, query: dict[str, str]):
    got = await sent(api, method="GET", query=query)
    assert (got.status, got.code) == (400, "BAD_REQUEST")


async def test_an_address_that_is_not_utf8_is_a_400(api: Api):
    url = f"http://{api.server.address}/graphql?query=%ff%fe"
    async with api.server.http.get(url, headers={"authorization": f"Bearer {api.token}"}) as response:
        assert response.status == 400


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "HEAD"])
async def test_other_methods_are_refused_with_the_allowed_ones(api: Api, method: str):
    got = await sent(api, method=method)
    assert (got.status, got.headers["allow"]) == (405, "GET, POST, OPTIONS")


async def test_the_cost_is_returned_with_the_response(api: Api):
    body = {
        "query": "query ($n: Int!) { instances(first: $n) { nodes { id name } } }",
        "variables": {"n": 40},
    }
    got = await sent(api, body)
    # The connection, the list, and forty times an instance and two of its fields.
    assert got.body["extensions"] == {"cost": {"requested": 2 + 40 * 3, "limit": 20_000}}


async def test_what_costs_too_much_is_refused_with_the_numbers(api: Api):
    document = "query ($n: Int!) { instances(first: 100) { nodes { operations(first: $n) { id kind } } } }"
    assert (await sent(api, {"query": document, "variables": {"n": 10}})).body["data"] == {"instances": {"nodes": []}}

    got = await sent(api, {"query": document, "variables": {"n": 100}}, accept=RESPONSE)

    assert (got.status, got.code) == (400, "LIMIT_EXCEEDED")
    error = got.body["errors"][0]["extensions"]
    assert (error["limit"], error["allowed"], error["found"]) == ("QUERY_MAX_COST", 20_000, 2 + 100 * (2 + 100 * 3))
    assert got.body["extensions"]["cost"] == {"requested": error["found"], "limit": 20_000}


async def test_a_browser_on_its_way_to_a_page_gets_one_without_a_token(api: Api):
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    url = f"http://{api.server.address}/graphql"
    async with api.server.http.get(url, headers={"accept": browser}) as response:
        assert (response.status, response.content_type) == (200, "text/html")
    # A program that would take HTML, too, is no browser.
    got = await sent(api, method="GET", query=TYPENAME, accept=f"{JSON}, text/html;q=0.9")
    assert got.body["data"] == {"__typename": "Query"}
