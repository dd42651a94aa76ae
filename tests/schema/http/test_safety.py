"""What pages elsewhere can't do, how often a token may ask, and what goes out with every answer."""

import asyncio
import time
from typing import Any
from uuid import uuid4

import orjson
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from schema.rates import Rates
from server.shield import is_loopback_name
from tests.schema.api import Server, serving
from tests.schema.conftest import Api

EVIL = "https://evil.example"
APP = "https://app.example"
BODY = orjson.dumps({"query": "{ __typename }"})


async def asked(server: Server, token: str | None, *, method: str = "POST", path: str = "/graphql", **headers: str):
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        told["authorization"] = f"Bearer {token}"
    if method == "POST":
        told.setdefault("content-type", "application/json")
    body = BODY if method == "POST" else None
    async with server.http.request(method, f"http://{server.address}{path}", data=body, headers=told) as response:
        raw = await response.read()
        is_json = "json" in response.headers.get("content-type", "")
        return response.status, response.headers, orjson.loads(raw) if is_json else raw


def code_of(body: Any) -> str:
    return body["errors"][0]["extensions"]["code"]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": EVIL, "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_what_a_page_elsewhere_sends_is_refused_even_with_a_token(api: Api, method: str, headers: dict[str, str]):
    path = "/graphql?query=%7B__typename%7D" if method == "GET" else "/graphql"
    status, told, body = await asked(api.server, api.token, method=method, path=path, **headers)
    assert (status, code_of(body)) == (403, "FORBIDDEN_ORIGIN")
    assert "access-control-allow-origin" not in told


async def test_our_own_pages_and_programs_may_ask(api: Api):
    own = f"http://{api.server.address}"
    for headers in ({"origin": own}, {"origin": own, "sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}, {}):
        status, _, body = await asked(api.server, api.token, **headers)
        assert (status, body["data"]) == (200, {"__typename": "Query"})


async def test_a_page_of_an_allowed_origin_may_ask_and_read(api: Api):
    async with serving(api.server.runtime.database_url, api.server.simulator, allowed_origins=(APP,)) as server:
        asking = {"origin": APP, "access_control_request_method": "POST"}
        asking["access_control_request_headers"] = "authorization,content-type"
        status, told, _ = await asked(server, None, method="OPTIONS", **asking)
        assert (status, told["access-control-allow-origin"]) == (204, APP)
        assert "authorization" in told["access-control-allow-headers"]
        assert told["access-control-allow-methods"] == "GET, POST"
        assert "access-control-allow-credentials" not in told

        status, told, body = await asked(server, api.token, origin=APP, sec_fetch_site="cross-site")
        assert (status, body["data"]) == (200, {"__typename": "Query"})
        assert (told["access-control-allow-origin"], told["vary"]) == (APP, "origin")
        assert told["access-control-expose-headers"] == "x-request-id, retry-after"

        # What is refused can be read, too: a page shall know why.
        status, told, body = await asked(server, "pl_wrong", origin=APP)
        assert (status, told["access-control-allow-origin"]) == (401, APP)

        status, told, body = await asked(server, None, method="OPTIONS", **{**asking, "origin": EVIL})
        assert (status, "access-control-allow-origin" in told) == (403, False)


async def test_a_socket_of_a_page_elsewhere_is_refused_at_the_door(api: Api):
    for origin in (EVIL, "null", "http://127.0.0.1:1"):
        with pytest.raises(InvalidStatus) as refused:
            async with api.server.socket(api.token, origin=origin):
                pass
        assert refused.value.response.status_code == 403
    async with api.server.socket(api.token, origin=f"http://{api.server.address}") as socket:
        assert (await socket.receive())["type"] == "connection_ack"


@pytest.mark.parametrize("path", ["/graphql", "/healthz", "/readyz", "/metrics", "/", "/nowhere"])
async def test_every_answer_says_what_browsers_may_not_do_with_it(api: Api, path: str):
    status, told, _ = await asked(api.server, None, method="GET", path=path)
    assert status in (200, 401, 404)
    assert told["x-content-type-options"] == "nosniff"
    assert told["x-frame-options"] == "DENY"
    assert told["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in told["content-security-policy"]
    assert told["x-request-id"].startswith("req_")
    assert len(told.getall("content-security-policy")) == 1
    assert "server" not in told


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "8.8.8.8"])
async def test_a_server_of_this_machine_answers_to_no_name_that_others_can_point_at_it(api: Api, host: str):
    for path, method in (("/graphql", "POST"), ("/", "GET"), ("/metrics", "GET")):
        status, told, body = await asked(api.server, api.token, method=method, path=path, host=host)
        assert (status, code_of(body)) == (421, "UNKNOWN_HOST")
        assert told["x-content-type-options"] == "nosniff"


async def test_who_says_no_name_is_no_browser(api: Api):
    host, port = api.server.address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"200"
    writer.close()
    await writer.wait_closed()


async def test_names_can_be_allowed_for_a_proxy_on_the_same_machine(api: Api):
    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with serving(url, simulator, allowed_hosts=("api.example",)) as server:
        assert (await asked(server, api.token, host="API.example:443"))[0] == 200
        assert (await asked(server, api.token, host="other.example"))[0] == 421


@pytest.mark.parametrize("name", ["localhost", "app.localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_these_names_lead_to_this_machine_whoever_says_what(name: str):
    assert is_loopback_name(name)


async def test_a_token_that_asks_too_often_is_told_when_to_come_back_and_others_are_not(api: Api):
    async with serving(api.server.runtime.database_url, api.server.simulator, request_rate_limit=1) as server:
        # One for the request, and the document that is new here leaves a debt.
        assert (await asked(server, api.token))[0] == 200

        status, told, body = await asked(server, api.token)
        error = body["errors"][0]["extensions"]
        assert (status, error["code"], error["retryable"]) == (429, "RATE_LIMITED", True)
        assert 0 < error["retryAfterMs"] <= 120_000
        assert int(told["retry-after"]) == -(-error["retryAfterMs"] // 1000)

        # It is the token that is counted, over whatever it comes.
        async with server.socket(api.token) as socket:
            assert (await socket.receive())["type"] == "connection_ack"
            await socket.send({"id": "1", "type": "subscribe", "payload": {"query": "{ __typename }"}})
            refused = await socket.error()
            assert (refused["code"], refused["retryable"]) == ("RATE_LIMITED", True)
        other, _ = await api.world.new_token()
        assert (await asked(server, other))[0] == 200


def test_a_bucket_fills_up_by_the_clock_and_work_beyond_it_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    moment = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    rates, token, other = Rates(60), uuid4(), uuid4()
    assert [rates.take(token) for _ in range(61)] == [None] * 60 + [1000]
    assert rates.take(other) is None

    moment += 1.5
    assert [rates.take(token) for _ in range(2)] == [None, 500]

    rates.charge(token, 10_000)  # no more than a minute's worth is owed
    assert rates.take(token) == 61_000
    moment += 61
    assert rates.take(token) is None
    moment += 3600
    assert [rates.take(token) for _ in range(61)] == [None] * 60 + [1000]


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("schema.rates.MOST_TOKENS", 10)
    rates = Rates(1)
    tokens = [uuid4() for _ in range(12)]
    for token in tokens:
        assert rates.take(token) is None
    assert rates.take(tokens[-1]) is not None
    assert rates.take(tokens[0]) is None  # it was silent for longest


async def test_without_a_limit_a_token_may_ask_as_often_as_it_likes(api: Api):
    async with serving(api.server.runtime.database_url, api.server.simulator, request_rate_limit=0) as server:
        for _ in range(30):
            assert (await asked(server, api.token))[0] == 200


async def test_what_was_sent_in_the_wrong_place_is_not_repeated_in_errors(api: Api):
    """Clients write errors down; a password must not be in them."""
    secret = "hunter2-is-my-password"
    create = "mutation ($i: CreateInstanceInput!) { createInstance(input: $i) { errors { code message } } }"
    for variables in (
        {"i": secret},
        {"i": {"name": "x", "gpuCount": secret}},
        {"i": {"name": {"a": secret}, "productName": "p"}},
        {"i": {"name": "x", "productName": "p", "billing": secret}},
        {"i": {"name": "x", "productName": "p", "nothing": 1, "registryAuthId": secret}},
    ):
        answer = await api.ask(create, **variables)
        assert answer.body["errors"]
        assert secret not in str(answer.body), answer.body
    for literal in (f'"{secret}"', f'{{name: "x", gpuCount: "{secret}"}}', f'{{name: "x", billing: "{secret}"}}'):
        answer = await api.ask(f"mutation {{ createInstance(input: {literal}) {{ errors {{ code }} }} }}")
        assert answer.body["errors"]
        assert secret not in str(answer.body), answer.body


async def test_no_log_line_has_a_token_or_a_variable_in_it(api: Api):
    secret = "hunter2-is-my-password"
    create = "mutation ($i: CreateInstanceInput!) { createInstance(input: $i) { errors { code message } } }"
    with capture_logs() as lines:
        await asked(api.server, f"pl_{secret}")
        await api.ask(create, i={"name": secret})
        await api.ask("query ($n: String!) { instanceByName(name: $n) { id } }", n=secret)
        await api.ask(f'{{ instanceByName(name: "{secret}") {{ nothing }} }}')
        await api.server.ask("", token=api.token, raw=f'{{"query": "{secret}'.encode())
        async with api.server.socket(f"pl_{secret}") as socket:
            assert await socket.close_code() == 4403
    told = str(lines)
    assert "request.answered" in told
    assert secret not in told
    assert api.token not in told
