"""The login for people: /login, /login/callback and /logout."""

import base64
import binascii
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from html import escape

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from server.auth.oidc import LoginFailed, LoginRequest, OidcClient, OpenIdProvider
from server.auth.sessions import begin_session, end_session, role_of
from server.auth.wrong_tokens import TooManyWrongTokens
from server.clock import now
from server.config import Settings
from server.db.outages import DATABASE_ERRORS
from server.errors import StartupProblem
from server.graphql.transports.cookies import SessionCookie
from server.graphql.transports.scope import address_of
from server.runtime import Runtime

SUCCEEDED = 303  # See Other: the next step is elsewhere
LOGIN_TTL = 600  # seconds that a person may take at the OpenID provider
DIGEST_PURPOSE = b"login "
NO_STORE = {"cache-control": "no-store"}

log = structlog.get_logger(__name__)


class Login:
    """Without an OpenID provider there are no routes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._provider = provider_of(runtime.settings)
        self._cookie = SessionCookie.of(runtime.settings)

    @property
    def is_offered(self) -> bool:
        return self._provider is not None

    def routes(self) -> list[Route]:
        if self._provider is None:
            return []
        return [
            Route("/login", self._limited(self._begin), methods=["GET"]),
            Route("/login/callback", self._limited(self._finish), methods=["GET"]),
            Route("/logout", self._end, methods=["POST"]),
        ]

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()

    def _limited(self, step: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Steps that fail count as wrong tokens of their address: each costs a request to the OpenID provider."""

        async def answer(request: Request) -> Response:
            address = address_of(request.scope)
            try:
                self._runtime.wrong_tokens.take(address)
            except TooManyWrongTokens as refusal:
                return _too_many(refusal)
            response = await step(request)
            if response.status_code == SUCCEEDED:
                self._runtime.wrong_tokens.give_back(address)
            return response

        return answer

    async def _begin(self, request: Request) -> Response:
        """Send the browser to the OpenID provider, with a cookie that only this login's callback fits to."""
        if self._provider is None or self._cookie is None:
            raise LookupError("no OpenID provider")
        login = LoginRequest.new()
        try:
            await self._runtime.seals.load()
            address = await self._provider.authorization_url(login)
        except (LoginFailed, *DATABASE_ERRORS) as error:
            return _problem(_words_of(error), 503)
        response = RedirectResponse(address, status_code=SUCCEEDED, headers=NO_STORE)
        project = request.query_params.get("project", "")[:100]
        kept = [login.state, login.nonce, login.verifier, project, int(now().timestamp()) + LOGIN_TTL]
        response.set_cookie(value=self._seal(orjson.dumps(kept)), max_age=LOGIN_TTL, **self._cookie.login_attributes)
        return response

    async def _finish(self, request: Request) -> Response:
        """Compare the state, redeem the code, begin a session. The cookie of the login is used up in any case."""
        if self._provider is None or self._cookie is None:
            raise LookupError("no OpenID provider")
        try:
            await self._runtime.seals.load()
            login, project = self._open(request.cookies.get(self._cookie.login_name, ""))
            if not compare_digest(request.query_params.get("state", "").encode(), login.state.encode()):
                raise LoginFailed("The answer belongs to another login. Log in again.")
            person = await self._provider.finish(login, request.query_params)
            may = role_of(person, self._settings.group_roles, project or None)
            async with self._runtime.database.write() as session:
                secret = await begin_session(session, person, may, lifetime=self._settings.session_lifetime)
            response: Response = RedirectResponse("/", status_code=SUCCEEDED, headers=NO_STORE)
            lifetime = int(self._settings.session_lifetime.total_seconds())
            response.set_cookie(value=secret, max_age=lifetime, **self._cookie.attributes)
            log.info("login.done", project=may.project, role=may.role)
        except LoginFailed as error:
            log.warning("login.refused", reason=str(error))
            response = _problem(_words_of(error), 403)
        except DATABASE_ERRORS as error:
            response = _problem(_words_of(error), 503)
        response.set_cookie(value="", max_age=0, **self._cookie.login_attributes)
        return response

    async def _end(self, request: Request) -> Response:
        """End the session of a request that a page of ours sent."""
        if self._cookie is None:
            raise LookupError("no OpenID provider")
        secret = self._cookie.secret_of(dict(request.scope["headers"]))
        if secret is None:
            return Response("There is no session.", status_code=401, media_type="text/plain", headers=NO_STORE)
        try:
            caller = await self._runtime.tokens.caller_of(secret, address=address_of(request.scope))
            if caller is not None:  # else it is over, or was never begun
                async with self._runtime.database.write() as session:
                    await end_session(session, secret)
                self._runtime.tokens.forget()
        except TooManyWrongTokens as refusal:
            return _too_many(refusal)
        except DATABASE_ERRORS as error:  # the cookie is kept: the session goes on
            return _problem(_words_of(error), 503)
        response = Response(status_code=204, headers=NO_STORE)
        response.set_cookie(value="", max_age=0, **self._cookie.attributes)
        return response

    def _seal(self, data: bytes) -> str:
        tag = self._runtime.seals.digest(DIGEST_PURPOSE + data)
        return base64.urlsafe_b64encode(tag + data).decode()

    def _open(self, value: str) -> tuple[LoginRequest, str]:
        """The login that this server began in this browser, and the wanted project. Raises LoginFailed."""
        expired = LoginFailed("This login is over, or began in another browser. Log in again.")
        try:
            raw = base64.urlsafe_b64decode(value.encode("ascii"))
        except (binascii.Error, ValueError):
            raise expired from None
        tag, data = raw[:16], raw[16:]
        if not data or not compare_digest(tag, self._runtime.seals.digest(DIGEST_PURPOSE + data)):
            raise expired
        state, nonce, verifier, project, until = orjson.loads(data)
        if until < now().timestamp():
            raise expired
        return LoginRequest(state, nonce, verifier), project


def provider_of(settings: Settings) -> OpenIdProvider | None:
    """Raises StartupProblem if only a part of the settings is there."""
    if settings.oidc_issuer is None:
        return None
    needed = {"OIDC_CLIENT_ID": settings.oidc_client_id, "PUBLIC_URL": settings.public_url}
    missing = [name for name, value in needed.items() if value is None]
    if not settings.oidc_groups:
        missing.append("OIDC_GROUPS")
    if missing:
        raise StartupProblem(f"OIDC_ISSUER also needs {' and '.join(missing)}")
    secret = settings.oidc_client_secret
    return OpenIdProvider(
        OidcClient(
            issuer=settings.oidc_issuer,
            client_id=str(settings.oidc_client_id),
            client_secret=None if secret is None else secret.get_secret_value(),
            redirect_uri=f"{settings.public_url}/login/callback",
            scopes=settings.oidc_scopes,
            groups_claim=settings.oidc_groups_claim,
        )
    )


def _too_many(refusal: TooManyWrongTokens) -> Response:
    return _problem("Too many logins from your address have failed. Try again later.", 429, refusal.wait_ms)


def _words_of(error: BaseException) -> str:
    return str(error) if isinstance(error, LoginFailed) else "The database can't be reached at the moment."


def _problem(text: str, status: int, wait_ms: int = 0) -> Response:
    page = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Pilotlight</title>
<h1>You are not logged in</h1><p>{escape(text)}</p>
<p><a href="/login">Log in again</a> or go to <a href="/">Pilotlight</a>.</p>
</html>"""
    headers = {**NO_STORE, "retry-after": str(-(-wait_ms // 1000))} if wait_ms else NO_STORE
    return Response(page, status_code=status, media_type="text/html", headers=headers)
