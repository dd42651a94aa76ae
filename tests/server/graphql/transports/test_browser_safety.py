"""CORS, Host and Origin checks, rate limits per token, and security headers."""

import asyncio
import contextlib
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from server.http.security import is_loopback_name
from tests.support.api import Api
from tests.support.api_server import Server, serving

EVIL = "https://evil.example"
APP = "https://app.example"
BODY = orjson.dumps({"query": "{ __typename }"})


async def asked(server: Server, token: str | None, *, method: str = "POST", path: str = "/graphql", **headers: str):
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    if method == "POST":
        sent.setdefault("content-type", "application/json")
    body = BODY if method == "POST" else None
    async with server.http.request(method, f"http://{server.address}{path}", data=body, headers=sent) as response:
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
    status, got, body = await asked(api.server, api.token, method=method, path=path, **headers)
    assert (status, code_of(body)) == (403, "FORBIDDEN_ORIGIN")
    assert "access-control-allow-origin" not in got


async def test_our_own_pages_and_programs_may_ask(api: Api):
    own = f"http://{api.server.address}"
    for headers in ({"origin": own}, {"origin": own, "sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}, {}):
        status, _, body = await asked(api.server, api.token, **headers)
        assert (status, body["data"]) == (200, {"__typename": "Query"})


async def test_a_page_of_an_allowed_origin_may_ask_and_read(api: Api):
    async with serving(api.server.runtime.database_url, api.server.simulator, allowed_origins=(APP,)) as server:
        preflight = {"origin": APP, "access_control_request_method": "POST"}
        preflight["access_control_request_headers"] = "authorization,content-type"
        status, got, _ = await asked(server, None, method="OPTIONS", **preflight)
        assert (status, got["access-control-allow-origin"]) == (204, APP)
        assert "authorization" in got["access-control-allow-headers"]
        assert got["access-control-allow-methods"] == "GET, POST"
        assert "access-control-allow-credentials" not in got

        status, got, body = await asked(server, api.token, origin=APP, sec_fetch_site="cross-site")
        assert (status, body["data"]) == (200, {"__typename": "Query"})
        assert (got["access-control-allow-origin"], got["vary"]) == (APP, "origin")
        assert got["access-control-expose-headers"] == "x-request-id, retry-after"

        # What is refused can be read, too: a page shall know why.
        status, got, body = await asked(server, "pl_wrong", origin=APP)
        assert (status, got["access-control-allow-origin"]) == (401, APP)

        status, got, body = await asked(server, None, method="OPTIONS", **{**preflight, "origin": EVIL})
        assert (status, "access-control-allow-origin" in got) == (403, False)


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
    status, got, _ = await asked(api.server, None, method="GET", path=path)
    assert status in (200, 401, 404)
    assert got["x-content-type-options"] == "nosniff"
    assert got["x-frame-options"] == "DENY"
    assert got["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in got["content-security-policy"]
    assert got["x-request-id"].startswith("req_")
    assert len(got.getall("content-security-policy")) == 1
    assert "server" not in got


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "8.8.8.8"])
async def test_a_server_of_this_machine_answers_to_no_name_that_others_can_point_at_it(api: Api, host: str):
    for path, method in (("/graphql", "POST"), ("/", "GET"), ("/metrics", "GET")):
        status, got, body = await asked(api.server, api.token, method=method, path=path, host=host)
        assert (status, code_of(body)) == (421, "UNKNOWN_HOST")
        assert got["x-content-type-options"] == "nosniff"


async def status_of(server: Server, *lines: str) -> int:
    """Of a request whose every byte is the test's own affair."""
    reader, writer = await asyncio.open_connection(*server.address.rsplit(":", 1))
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    status = int((await reader.readline()).split()[1])
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return status


async def test_only_a_health_check_in_http_1_0_may_have_no_host(api: Api):
    for path in ("/healthz", "/readyz"):
        assert await status_of(api.server, f"GET {path} HTTP/1.0") == 200
        assert await status_of(api.server, f"GET {path} HTTP/1.1") == 400
    for line in ("GET /graphql?query={__typename} HTTP/1.0", "GET /metrics HTTP/1.0", "GET / HTTP/1.1"):
        assert await status_of(api.server, line) == 400


UPGRADE = (
    "GET /graphql HTTP/1.1", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-protocol: graphql-transport-ws",
)  # fmt: skip
METHODS = (
    ("POST /graphql HTTP/1.1", "content-length: 0"),
    ("OPTIONS /graphql HTTP/1.1", "access-control-request-method: POST"),
    UPGRADE,
)


@pytest.mark.parametrize("lines", METHODS, ids=["POST", "OPTIONS", "WebSocket"])
@pytest.mark.parametrize("name", ["Host", "Authorization"])
async def test_a_header_that_must_be_single_is_refused_when_given_twice(api: Api, lines: tuple[str, ...], name: str):
    given = {"Host": api.server.address, "Authorization": f"Bearer {api.token}"}
    headers = [f"{each}: {value}" for each, value in given.items()]
    assert await status_of(api.server, *lines, *headers, f"{name}: x") == 400
    assert await status_of(api.server, *lines, f"{name}: {given[name]}", *headers) == 400
    assert await status_of(api.server, *lines, headers[1]) == 400  # no Host


@pytest.mark.parametrize("lines", METHODS, ids=["POST", "OPTIONS", "WebSocket"])
async def test_no_malformed_header_is_a_fault_of_ours(api: Api, lines: tuple[str, ...]):
    values = ("http://[", "[", "]", "::", "http://[::1", "\xff\xfe", ",;=", '"', "%", "-1", "9" * 400, "a" * 7000, "")
    names = ("Origin", "Host", "Authorization", "Accept", "Content-Type", "Content-Encoding", "Sec-Fetch-Site")
    names += ("Last-Event-ID", "Traceparent", "X-Forwarded-For", "X-Forwarded-Proto", "Cookie", "Expect")
    names += ("Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "Sec-WebSocket-Key", "Sec-WebSocket-Version")
    given = {"host": api.server.address, "authorization": f"Bearer {api.token}"}
    with capture_logs() as log:
        for name in names:
            rest = [f"{each}: {value}" for each, value in given.items() if each != name.lower()]
            kept = [line for line in lines if not line.startswith(f"{name.lower()}:")]
            for value in values:
                status = await status_of(api.server, *kept, *rest, f"{name}: {value}")
                assert status < 500, (name, value, status)
        assert await status_of(api.server, *lines, *(f"{n}: {v}" for n, v in given.items()), "Origin: http://[") == 403
    assert [line for line in log if line["log_level"] == "error"] == []


async def test_names_can_be_allowed_for_a_proxy_on_the_same_machine(api: Api):
    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with serving(url, simulator, allowed_hosts=("api.example",)) as server:
        assert (await asked(server, api.token, host="API.example:443"))[0] == 200
        assert (await asked(server, api.token, host="other.example"))[0] == 421


@pytest.mark.parametrize("name", ["localhost", "app.localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_these_names_are_loopback_names(name: str):
    assert is_loopback_name(name)


async def test_a_token_over_its_rate_gets_retry_after_and_others_are_served(api: Api):
    async with serving(api.server.runtime.database_url, api.server.simulator, request_rate_limit=1) as server:
        # One for the request, and the document that is new here leaves a debt.
        assert (await asked(server, api.token))[0] == 200

        status, got, body = await asked(server, api.token)
        error = body["errors"][0]["extensions"]
        assert (status, error["code"], error["retryable"]) == (429, "RATE_LIMITED", True)
        assert 0 < error["retryAfterMs"] <= 120_000
        assert int(got["retry-after"]) == -(-error["retryAfterMs"] // 1000)

        # It is the token that is counted, over whatever it comes.
        async with server.socket(api.token) as socket:
            assert (await socket.receive())["type"] == "connection_ack"
            await socket.send({"id": "1", "type": "subscribe", "payload": {"query": "{ __typename }"}})
            refused = await socket.error()
            assert (refused["code"], refused["retryable"]) == ("RATE_LIMITED", True)
        other, _ = await api.world.new_token()
        assert (await asked(server, other))[0] == 200


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
    log = str(lines)
    assert "request.answered" in log
    assert secret not in log
    assert api.token not in log
