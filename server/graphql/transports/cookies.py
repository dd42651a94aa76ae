"""The cookie of a login, accepted only from pages of our own origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

from server.auth.tokens import SESSION_PREFIX
from server.config import Settings

COOKIES_MAX = 8192  # characters


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """`origin` is that of the dashboard as browsers see it; without https it is on loopback."""

    origin: str

    @classmethod
    def of(cls, settings: Settings) -> "SessionCookie | None":
        return None if settings.oidc_issuer is None or settings.public_url is None else cls(settings.public_url)

    def secret_of(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The session's secret. None for a request of another origin: a browser adds the cookie to those, too.

        Browsers send Origin with each POST and WebSocket, and Sec-Fetch-Site with a GET of the same origin.
        """
        origin, cookies = headers.get(b"origin"), headers.get(b"cookie", b"").decode("latin-1")
        is_same_origin = headers.get(b"sec-fetch-site") == b"same-origin"
        is_ours = is_same_origin if origin is None else origin == self.origin.encode()
        if not is_ours or not cookies or len(cookies) > COOKIES_MAX:
            return None
        try:
            found = SimpleCookie(cookies).get(self.name)
        except CookieError:
            return None
        return found.value if found is not None and found.value.startswith(SESSION_PREFIX) else None

    @property
    def is_secure(self) -> bool:
        return self.origin.startswith("https:")

    @property
    def name(self) -> str:
        """With the prefix, a browser takes it only over https and from this very host."""
        return f"{'__Host-' if self.is_secure else ''}pilotlight_session"

    @property
    def login_name(self) -> str:
        return f"{'__Host-' if self.is_secure else ''}pilotlight_login"

    @property
    def attributes(self) -> dict[str, Any]:
        return {"key": self.name, "path": "/", "secure": self.is_secure, "httponly": True, "samesite": "strict"}

    @property
    def login_attributes(self) -> dict[str, Any]:
        """Lax: the OpenID provider's redirect comes from another site."""
        return {**self.attributes, "key": self.login_name, "samesite": "lax"}
