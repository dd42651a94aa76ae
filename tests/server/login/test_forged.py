"""ID tokens that are not for this login are refused, whatever is wrong with them."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest

from server.auth.oidc import LoginFailed, LoginRequest, OidcClient, OpenIdProvider
from server.auth.wrong_tokens import WrongTokens
from server.config import Settings
from server.errors import StartupProblem
from server.http.login import provider_of
from tests.server.login.providers import Forger, forger
from tests.server.login.test_login import free_port
from tests.support.api_server import Server, serving
from tests.support.databases import DatabaseMaker
from tests.support.world import a_simulator

Forge = Callable[[Forger, dict[str, Any]], None]


@pytest.fixture(scope="module")
async def served(new_database: DatabaseMaker) -> AsyncIterator[tuple[Server, Forger]]:
    port = free_port()
    async with forger() as forging, a_simulator() as simulator:
        settings: dict[str, Any] = {
            "port": port,
            "public_url": f"http://127.0.0.1:{port}",
            "oidc_issuer": forging.issuer,
            "oidc_client_id": "pilotlight",
            "oidc_groups": ("ml=vision:OPERATOR",),
            "oidc_groups_claim": "teams",
        }
        async with serving(await new_database.migrated(), simulator, **settings) as server:
            yield server, forging


async def log_in(served: tuple[Server, Forger], forge: Forge, **callback: str) -> tuple[int, str]:
    """Status and text of the callback after the provider has issued what `forge` signs."""
    server, forging = served
    origin = server.runtime.settings.public_url
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        async with http.get(f"{origin}/login", allow_redirects=False) as response:
            asked = {name: value[0] for name, value in parse_qs(urlsplit(response.headers["location"]).query).items()}
        moment = int(time.time())
        claims = {
            "iss": forging.issuer,
            "aud": "pilotlight",
            "sub": "bob",
            "nonce": asked["nonce"],
            "iat": moment,
            "exp": moment + 300,
            "teams": ["ml"],
        }
        forge(forging, claims)
        query = urlencode({"code": "c", "state": asked["state"], **callback})
        async with http.get(f"{origin}/login/callback?{query}", allow_redirects=False) as response:
            return response.status, await response.text()


async def sessions(served: tuple[Server, Forger]) -> int:
    return await served[0].runtime.database.raw.fetchval("SELECT count(*) FROM token WHERE is_session")


def changed(**values: Any) -> Forge:
    def forge(forging: Forger, claims: dict[str, Any]) -> None:
        kept = {name: value for name, value in {**claims, **values}.items() if value is not None}
        forging.sign(kept)

    return forge


def unsigned(forging: Forger, claims: dict[str, Any]) -> None:
    forging.sign(claims, alg="none", key="")


def signed_with_the_client_id(forging: Forger, claims: dict[str, Any]) -> None:
    forging.sign(claims, alg="HS256", key="pilotlight".ljust(32, "0"))


def signed_with_another_key(forging: Forger, claims: dict[str, Any]) -> None:
    forging.sign(claims, key=forging.other_key)


def signed_with_an_unknown_key(forging: Forger, claims: dict[str, Any]) -> None:
    forging.sign(claims, key=forging.other_key, kid="two")


def no_token(forging: Forger, _: dict[str, Any]) -> None:
    forging.id_token = "nothing"


async def test_a_right_token_logs_in_and_its_code_is_redeemed_with_the_verifier(served: tuple[Server, Forger]):
    before = await sessions(served)
    assert (await log_in(served, changed()))[0] == 303

    assert await sessions(served) == before + 1
    form = served[1].redeemed[-1]
    assert sorted(form) == ["client_id", "code", "code_verifier", "grant_type", "redirect_uri"]
    assert len(form["code_verifier"]) == 43


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (unsigned, "InvalidAlgorithmError"),
        (signed_with_the_client_id, "InvalidAlgorithmError"),
        (signed_with_another_key, "InvalidSignatureError"),
        (signed_with_an_unknown_key, "InvalidKeyError"),
        (no_token, "DecodeError"),
        (changed(nonce="another"), "another login"),
        (changed(nonce=None), "another login"),
        (changed(aud="other-client"), "InvalidAudienceError"),
        (changed(aud=["pilotlight", "other"]), "another client"),
        (changed(azp="other-client"), "another client"),
        (changed(iss="https://evil.example"), "InvalidIssuerError"),
        (changed(exp=1), "ExpiredSignatureError"),
        (changed(exp=None), "MissingRequiredClaimError"),
        (changed(sub=None), "MissingRequiredClaimError"),
        (changed(iat=int(time.time()) + 3600), "ImmatureSignatureError"),
        (changed(teams=None, groups=["ml"]), "None of your groups"),
        (changed(teams=["others"]), "None of your groups"),
        (changed(teams={"ml": True}), "None of your groups"),
    ],
)
async def test_a_forged_or_foreign_token_is_refused(served: tuple[Server, Forger], forge: Forge, reason: str):
    before = await sessions(served)
    status, text = await log_in(served, forge)

    assert (status, reason in text) == (403, True), text
    assert await sessions(served) == before


@pytest.mark.parametrize(
    ("callback", "reason"),
    [
        ({"state": "another"}, "another login"),
        ({"iss": "https://evil.example"}, "another OpenID provider"),
        ({"error": "access_denied"}, "did not log you in"),
        ({"code": ""}, "did not log you in"),
        ({"error": "<script>alert(1)</script>"}, "did not log you in"),
    ],
)
async def test_a_callback_that_does_not_fit_redeems_nothing(
    served: tuple[Server, Forger], callback: dict[str, str], reason: str
):
    before = len(served[1].redeemed)
    status, text = await log_in(served, changed(), **callback)

    assert (status, reason in text, "<script" in text) == (403, True, False)
    assert len(served[1].redeemed) == before


async def test_logins_that_fail_are_limited_per_address(served: tuple[Server, Forger], monkeypatch: pytest.MonkeyPatch):
    """Each would cost a request to the OpenID provider, and a line in the log."""
    server, forging = served
    monkeypatch.setattr(server.runtime, "wrong_tokens", WrongTokens(3))
    assert [(await log_in(served, changed()))[0] for _ in range(5)] == [303] * 5
    assert [(await log_in(served, no_token))[0] for _ in range(3)] == [403] * 3

    redeemed = len(forging.redeemed)
    async with aiohttp.ClientSession() as http:
        for path in ("/login", "/login/callback?code=c&state=s"):
            address = f"{server.runtime.settings.public_url}{path}"
            async with http.get(address, allow_redirects=False) as response:
                assert response.status == 429
                assert 0 < int(response.headers["retry-after"]) <= 20
    assert len(forging.redeemed) == redeemed


@pytest.mark.parametrize("lacks", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
async def test_a_provider_whose_configuration_is_not_complete_is_said_to_be_so(lacks: str):
    async with forger() as forging:
        forging.lacks = lacks
        provider = OpenIdProvider(OidcClient(forging.issuer, "pilotlight", None, "http://x/login/callback", "", ""))
        try:
            with pytest.raises(LoginFailed, match="configuration is not complete"):
                await provider.authorization_url(LoginRequest.new())
        finally:
            await provider.close()


def test_half_of_the_settings_is_refused_at_start():
    with pytest.raises(StartupProblem, match="OIDC_ISSUER also needs OIDC_CLIENT_ID and PUBLIC_URL and OIDC_GROUPS"):
        provider_of(Settings(oidc_issuer="https://login.example.com"))
    assert provider_of(Settings()) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"public_url": "http://gpu.example.com"},
        {"public_url": "https://gpu.example.com/pilot"},
        {"oidc_issuer": "http://login.example.com"},
        {"oidc_issuer": "https://me@login.example.com"},
        {"oidc_groups": ("ml=vision",)},
        {"oidc_groups": ("ml=vision:OWNER",)},
    ],
)
def test_a_setting_that_is_not_safe_is_refused(settings: dict[str, Any]):
    with pytest.raises(StartupProblem):
        Settings.from_env(**settings)
