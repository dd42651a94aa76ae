"""People log in with a real OpenID provider; programs of other origins can't use their session."""

import socket
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import orjson
import pytest

from tests.server.auth.test_tokens import counted
from tests.server.login.providers import node_provider
from tests.support.api_server import Server, serving
from tests.support.databases import DatabaseMaker
from tests.support.waiting import until
from tests.support.world import a_simulator

VIEWER = {"query": "{ viewer { role project { name } token { name isSession } } }"}
GROUPS = ("gpu-admins=default:ADMIN", "ml=default:READER", "ml=vision:OPERATOR")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
async def served(new_database: DatabaseMaker) -> AsyncIterator[Server]:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    async with node_provider(f"{origin}/login/callback", "s" * 32) as issuer, a_simulator() as simulator:
        settings: dict[str, Any] = {
            "port": port,
            "public_url": origin,
            "oidc_issuer": issuer,
            "oidc_client_id": "pilotlight",
            "oidc_client_secret": "s" * 32,
            "oidc_scopes": "openid profile groups",
            "oidc_groups": GROUPS,
            "session_lifetime": timedelta(hours=2),
            "socket_token_check": timedelta(milliseconds=200),
        }
        async with serving(await new_database.migrated(), simulator, **settings) as server:
            yield server


class Browser:
    """Follows redirects and keeps cookies, as a browser does; `page` are headers of a script of our page."""

    def __init__(self, server: Server, http: aiohttp.ClientSession) -> None:
        self.server, self.http = server, http
        self.origin = server.runtime.settings.public_url or ""
        self.page = {"origin": self.origin}

    async def log_in(self, person: str = "ada", query: str = "") -> aiohttp.ClientResponse:
        """The last response; `callback` is the address that the provider sent the browser to."""
        self.http.cookie_jar.update_cookies({"person": person})
        address = f"{self.origin}/login{query}"
        for _ in range(8):
            async with self.http.get(address, allow_redirects=False) as response:
                await response.read()
            if urlsplit(address).path == "/login/callback":
                self.callback = address
                return response
            address = response.headers["location"]
            if address.startswith("/"):
                address = f"{response.url.origin()}{address}"
        raise AssertionError("too many redirects")

    async def ask(self, **headers: str) -> tuple[int, dict[str, Any]]:
        async with self.http.post(f"{self.origin}/graphql", json=VIEWER, headers=headers) as response:
            return response.status, await response.json()

    async def viewer(self) -> dict[str, Any]:
        status, body = await self.ask(**self.page)
        assert status == 200, body
        return body["data"]["viewer"]

    @property
    def secret(self) -> str:
        return next(cookie.value for cookie in self.http.cookie_jar if cookie.key == "pilotlight_session")

    async def sessions(self) -> int:
        return await self.server.runtime.database.raw.fetchval("SELECT count(*) FROM token WHERE is_session")


@pytest.fixture
async def browser(served: Server) -> AsyncIterator[Browser]:
    await served.runtime.database.raw.execute("DELETE FROM token WHERE is_session")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield Browser(served, http)


async def test_a_person_logs_in_with_the_role_of_the_best_group(browser: Browser):
    response = await browser.log_in("ada")

    assert (response.status, response.headers["location"]) == (303, "/")
    cookie = SimpleCookie("; ".join(response.headers.getall("set-cookie")))["pilotlight_session"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    assert (cookie["max-age"], cookie["domain"]) == ("7200", "")
    token = {"name": "ada@example.com", "isSession": True}
    assert await browser.viewer() == {"role": "ADMIN", "project": {"name": "default"}, "token": token}


async def test_the_project_can_be_chosen_among_those_of_the_groups(browser: Browser):
    await browser.log_in("ada", "?project=vision")
    assert (await browser.viewer())["project"] == {"name": "vision"}
    assert (await browser.viewer())["role"] == "OPERATOR"

    refused = await browser.log_in("ada", "?project=theirs")
    assert refused.status == 403


async def test_a_person_without_a_known_group_gets_no_session(browser: Browser):
    response = await browser.log_in("eve")

    assert response.status == 403
    assert await browser.sessions() == 0
    assert (await browser.ask(**browser.page))[0] == 401


async def test_the_login_begins_with_pkce_state_and_nonce_and_never_leads_elsewhere(browser: Browser):
    for query in ("", "?next=https://evil.example", "?project=//evil.example"):
        async with browser.http.get(f"{browser.origin}/login{query}", allow_redirects=False) as response:
            asked = parse_qs(urlsplit(response.headers["location"]).query)
        assert response.headers["location"].startswith(browser.server.runtime.settings.oidc_issuer or "-")
        assert asked["redirect_uri"] == [f"{browser.origin}/login/callback"]
        assert asked["scope"] == ["openid profile groups"]
        assert (asked["code_challenge_method"], asked["response_type"]) == (["S256"], ["code"])
        assert all(len(asked[name][0]) == 43 for name in ("state", "nonce", "code_challenge"))
    response = await browser.log_in("ada", "?next=https://evil.example")
    assert response.headers["location"] == "/"


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}],
    ids=["no origin", "another origin", "null", "same site"],
)
async def test_a_request_of_another_origin_is_not_made_with_the_session(browser: Browser, headers: dict[str, str]):
    await browser.log_in()
    status, body = await browser.ask(**headers)
    assert (status, "data" in body) in ((401, False), (403, False))


async def test_a_session_is_no_token_for_programs(browser: Browser):
    await browser.log_in()
    secret = browser.secret
    browser.http.cookie_jar.clear()

    for authorization in (f"Bearer {secret}", f"Session {secret}"):
        assert (await browser.ask(authorization=authorization))[0] == 401
    async with browser.http.post(f"{browser.origin}/mcp", json={}, headers={**browser.page, "cookie": "a=b"}) as answer:
        assert answer.status == 401


async def test_a_websocket_uses_the_session_of_our_own_page_only(browser: Browser):
    await browser.log_in()

    async def opened(origin: str | None) -> str:
        headers = {} if origin is None else {"origin": origin}
        address = f"{browser.origin}/graphql"
        async with browser.http.ws_connect(address, protocols=["graphql-transport-ws"], headers=headers) as ws:
            await ws.send_json({"type": "connection_init"})
            message = await ws.receive()
            return message.json()["type"] if message.type is aiohttp.WSMsgType.TEXT else str(message.data)

    assert await opened(browser.origin) == "connection_ack"
    assert await opened(None) == "4403"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await opened("https://evil.example")
    assert refused.value.status == 403


async def test_a_websocket_takes_no_session_in_the_place_of_a_token(browser: Browser):
    """Also just after the cookie was accepted: what is known of it then is not known of a token."""
    await browser.log_in()
    secret, address = browser.secret, f"{browser.origin}/graphql"
    protocols = ["graphql-transport-ws"]
    async with browser.http.ws_connect(address, protocols=protocols, headers=browser.page) as ws:
        await ws.send_json({"type": "connection_init"})
        assert (await ws.receive_json())["type"] == "connection_ack"
        browser.http.cookie_jar.clear()
        for given in (secret, f"Bearer {secret}"):
            async with browser.http.ws_connect(address, protocols=protocols) as other:
                await other.send_json({"type": "connection_init", "payload": {"Authorization": given}})
                assert (await other.receive()).data == 4403


async def test_logging_out_ends_the_session_and_its_websockets(browser: Browser):
    await browser.log_in()
    secret, address = browser.secret, f"{browser.origin}/graphql"
    async with browser.http.ws_connect(address, protocols=["graphql-transport-ws"], headers=browser.page) as ws:
        await ws.send_json({"type": "connection_init"})
        assert (await ws.receive_json())["type"] == "connection_ack"

        async with browser.http.post(f"{browser.origin}/logout") as elsewhere:
            assert elsewhere.status == 401
        assert (await browser.viewer())["role"] == "ADMIN"
        async with browser.http.post(f"{browser.origin}/logout", headers=browser.page) as response:
            assert response.status == 204

        closed = await ws.receive(timeout=20)
        assert closed.data == 4403
    cookie = f"pilotlight_session={secret}"
    assert (await browser.ask(cookie=cookie, **browser.page))[0] == 401


async def test_logging_out_without_a_session_writes_nothing(browser: Browser):
    cookie = {"cookie": f"pilotlight_session=pls_{'x' * 43}", **browser.page}
    with counted(browser.server.runtime.database) as statements:
        async with browser.http.post(f"{browser.origin}/logout", headers=cookie) as response:
            assert response.status == 204

    assert [each for each in statements if "UPDATE" in each] == []


async def test_an_expired_session_is_refused(browser: Browser):
    await browser.log_in()
    await browser.server.runtime.database.raw.execute("UPDATE token SET expires_at = now() WHERE is_session")
    browser.server.runtime.tokens.forget()

    assert (await browser.ask(**browser.page))[0] == 401


async def test_a_callback_works_once(browser: Browser):
    await browser.log_in()
    kept = {cookie.key: cookie.value for cookie in browser.http.cookie_jar}
    async with browser.http.get(browser.callback, allow_redirects=False) as again:
        assert again.status == 403
    assert "pilotlight_login" not in kept
    assert await browser.sessions() == 1


async def test_a_callback_with_the_cookie_of_another_login_is_refused(browser: Browser):
    await browser.log_in()
    first = browser.callback
    async with browser.http.get(f"{browser.origin}/login", allow_redirects=False):
        pass
    async with browser.http.get(first, allow_redirects=False) as response:
        assert response.status == 403
        assert "another login" in await response.text()
    assert await browser.sessions() == 1


async def test_a_changed_login_cookie_is_refused(browser: Browser):
    async with browser.http.get(f"{browser.origin}/login", allow_redirects=False) as response:
        value = response.cookies["pilotlight_login"].value
        assert response.cookies["pilotlight_login"]["samesite"] == "lax"
        state = parse_qs(urlsplit(response.headers["location"]).query)["state"][0]
    browser.http.cookie_jar.clear()
    kept = orjson.loads(urlsafe_b64decode(value)[16:])
    assert kept[0] == state
    forged = urlsafe_b64encode(bytes(16) + orjson.dumps(kept)).decode()
    for cookie in (forged, value[:-8], "", "!", "AAAA"):
        address = f"{browser.origin}/login/callback?code=c&state={state}"
        headers = {"cookie": f"pilotlight_login={cookie}"}
        async with browser.http.get(address, headers=headers, allow_redirects=False) as response:
            assert response.status == 403
            assert "This login is over" in await response.text()
    assert await browser.sessions() == 0


async def test_a_person_makes_a_token_that_outlasts_the_login(browser: Browser):
    await browser.log_in()
    create = {"query": 'mutation { createToken(input: {name: "ci"}) { token { expiresAt isSession } } }'}
    async with browser.http.post(f"{browser.origin}/graphql", json=create, headers=browser.page) as response:
        body = await response.json()
    assert body["data"]["createToken"]["token"] == {"expiresAt": None, "isSession": False}


async def test_the_page_offers_the_login(browser: Browser):
    async with browser.http.get(browser.origin) as response:
        text = await response.text()
    if "make web" not in text:  # else the page is not built here
        assert '"login": true' in text


async def test_revoking_the_session_logs_the_person_out(browser: Browser):
    await browser.log_in()
    id = await browser.server.runtime.database.raw.fetchval("SELECT id FROM token WHERE is_session")
    revoke = {"query": f'mutation {{ revokeToken(input: {{id: "tok_{id.hex}"}}) {{ errors {{ code }} }} }}'}
    async with browser.http.post(f"{browser.origin}/graphql", json=revoke, headers=browser.page) as response:
        assert (await response.json())["data"]["revokeToken"]["errors"] == []

    async def is_out() -> bool:
        return (await browser.ask(**browser.page))[0] == 401

    await until(is_out)
