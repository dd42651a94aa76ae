"""OpenID Connect, as a client: authorisation code with PKCE, and the check of the ID token."""

import base64
import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hmac import compare_digest
from typing import Any
from urllib.parse import urlencode

import aiohttp
import jwt
import orjson

from server.errors import PilotlightError

# Only signatures with a public key: `none` signs nothing, and for HS256 the client's id could serve as the key.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
METADATA_TTL = timedelta(hours=1)
KEYS_INTERVAL = timedelta(minutes=1)  # between two reads of the keys, whatever key ids tokens name
CLOCK_TOLERANCE = timedelta(seconds=60)
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=10)
RESPONSE_MAX = 256 * 1024  # bytes
NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class LoginFailed(PilotlightError):
    """The person is not logged in; the message may be shown."""


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """The secrets of one login, kept by the browser until the OpenID provider sends it back."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> "LoginRequest":
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Person:
    """Who logged in, as far as it is of use here."""

    subject: str
    name: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class OidcClient:
    """How this server is known to the OpenID provider."""

    issuer: str
    client_id: str
    client_secret: str | None
    redirect_uri: str
    scopes: str
    groups_claim: str


class OpenIdProvider:
    """One per API process: metadata and keys are cached."""

    def __init__(self, client: OidcClient) -> None:
        self._client = client
        self._http: aiohttp.ClientSession | None = None
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: jwt.PyJWKSet | None = None
        self._keys_again_at = 0.0

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def authorization_url(self, login: LoginRequest) -> str:
        query = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect_uri,
            "scope": self._client.scopes,
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": login.challenge,
            "code_challenge_method": "S256",
        }
        endpoint = str((await self._discover())["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def finish(self, login: LoginRequest, callback: Mapping[str, str]) -> Person:
        """The person of a callback, whose state the caller has compared with the browser's."""
        issuer = callback.get("iss", self._client.issuer)
        if issuer.rstrip("/") != self._client.issuer:
            raise LoginFailed("The answer comes from another OpenID provider.")
        if "error" in callback or not callback.get("code"):
            raise LoginFailed("The OpenID provider did not log you in.")
        tokens = await self._redeem(callback["code"], login)
        claims = await self._check_id_token(str(tokens.get("id_token", "")), nonce=login.nonce)
        if self._client.groups_claim not in claims:
            claims = {**await self._user_info(tokens, str(claims["sub"])), **claims}
        return Person(str(claims["sub"]), _name_of(claims), _groups_of(claims.get(self._client.groups_claim)))

    async def _redeem(self, code: str, login: LoginRequest) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect_uri,
            "client_id": self._client.client_id,
            "code_verifier": login.verifier,
        }
        if self._client.client_secret is not None:
            form["client_secret"] = self._client.client_secret
        return await self._request("POST", str((await self._discover())["token_endpoint"]), data=form)

    async def _check_id_token(self, token: str, *, nonce: str) -> dict[str, Any]:
        try:
            key = await self._key_of(token)
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._client.client_id,
                issuer=str((await self._discover())["issuer"]),
                leeway=CLOCK_TOLERANCE,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise LoginFailed(f"The ID token is not valid: {type(error).__name__}.") from error
        if not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise LoginFailed("The ID token belongs to another login.")
        audiences: Any = claims["aud"]
        is_shared = isinstance(audiences, list) and len(audiences) > 1  # pyright: ignore[reportUnknownArgumentType]
        if (is_shared or "azp" in claims) and claims.get("azp") != self._client.client_id:
            raise LoginFailed("The ID token was issued to another client.")
        return claims

    async def _key_of(self, token: str) -> jwt.PyJWK:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError
        for is_last in (False, True):
            keys = await self._read_keys(is_refresh=is_last)
            signing = [key for key in keys.keys if key.public_key_use in (None, "sig")]
            found = [key for key in signing if key.key_id == header.get("kid")]
            if len(found) == 1:
                return found[0]
        raise jwt.InvalidKeyError

    async def _read_keys(self, *, is_refresh: bool) -> jwt.PyJWKSet:
        if self._keys is None or (is_refresh and time.monotonic() >= self._keys_again_at):
            self._keys_again_at = time.monotonic() + KEYS_INTERVAL.total_seconds()
            self._keys = jwt.PyJWKSet.from_dict(await self._request("GET", str((await self._discover())["jwks_uri"])))
        return self._keys

    async def _user_info(self, tokens: dict[str, Any], subject: str) -> dict[str, Any]:
        endpoint = (await self._discover()).get("userinfo_endpoint")
        if endpoint is None or not isinstance(tokens.get("access_token"), str):
            return {}
        headers = {"authorization": f"Bearer {tokens['access_token']}"}
        info = await self._request("GET", str(endpoint), headers=headers)
        return info if info.get("sub") == subject else {}  # else it is about another person

    async def _discover(self) -> dict[str, Any]:
        if time.monotonic() >= self._metadata_until:
            found = await self._request("GET", f"{self._client.issuer}/.well-known/openid-configuration")
            if str(found.get("issuer", "")).rstrip("/") != self._client.issuer:
                raise LoginFailed("The OpenID provider calls itself by another name than OIDC_ISSUER.")
            if not all(isinstance(found.get(name), str) for name in NEEDED):
                raise LoginFailed("The OpenID provider's configuration is not complete.")
            self._metadata, self._metadata_until = found, time.monotonic() + METADATA_TTL.total_seconds()
        return self._metadata

    async def _request(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=REQUEST_TIMEOUT)
        try:
            async with self._http.request(method, url, allow_redirects=False, **options) as response:
                if response.status != 200:
                    raise LoginFailed(f"The OpenID provider answered with HTTP {response.status}.")
                parsed = orjson.loads(await _read(response.content))
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
            raise LoginFailed("The OpenID provider can't be reached at the moment.") from error
        if not isinstance(parsed, dict):
            raise LoginFailed("The OpenID provider's answer can't be read.")
        return parsed  # pyright: ignore[reportUnknownVariableType]


async def _read(content: aiohttp.StreamReader) -> bytes:
    """All of it. One read returns no more than has arrived so far."""
    body = bytearray()
    while chunk := await content.read(RESPONSE_MAX):
        body += chunk
        if len(body) > RESPONSE_MAX:
            raise LoginFailed("The OpenID provider's answer is too long.")
    return bytes(body)


def _groups_of(claim: Any) -> frozenset[str]:
    if isinstance(claim, str):
        return frozenset({claim})
    return frozenset(str(group) for group in claim) if isinstance(claim, list) else frozenset()  # pyright: ignore


def _name_of(claims: Mapping[str, Any]) -> str:
    for name in ("preferred_username", "email", "name", "sub"):
        value = "".join(each for each in str(claims.get(name) or "") if each.isprintable()).strip()
        if value:
            return value[:100]
    return "person"
