"""Settings of the login for people: OpenID Connect."""

import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from server.config.types import Duration, SettingsGroup, Words
from server.enums import Role

LOOPBACK = ("localhost", "127.0.0.1", "::1")
GROUP = re.compile(rf"(?P<group>[^=]+)=(?P<project>[^=]+):(?P<role>{'|'.join(Role)})")


@dataclass(frozen=True, slots=True)
class GroupRole:
    """What members of a group may do in a project."""

    group: str
    project: str
    role: Role


class LoginSettings(SettingsGroup):
    public_url: str | None = Field(
        default=None,
        description="Address of the dashboard as browsers see it, such as https://gpu.example.com. The login needs it.",
    )
    oidc_issuer: str | None = Field(
        default=None, description="OpenID provider that people log in with. Without one, only tokens are accepted."
    )
    oidc_client_id: str | None = Field(default=None, description="Client id of Pilotlight at the OpenID provider.")
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="Its secret. None for a public client, which PKCE alone protects."
    )
    oidc_scopes: str = Field(default="openid profile email", description="Scopes to request of the OpenID provider.")
    oidc_groups_claim: str = Field(default="groups", description="Claim that has the groups of a person.")
    oidc_groups: Words = Field(
        default=(),
        description="What groups may do: `group=project:ROLE`, separated by commas. A person gets the first project "
        "that a group is for, or the one of `/login?project=NAME`.",
    )
    session_lifetime: Duration = Field(
        default=timedelta(hours=8), description="How long a login lasts; then the person logs in again."
    )

    @field_validator("public_url", "oidc_issuer")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        schemes = ("http", "https") if parts.hostname in LOOPBACK else ("https",)
        if not parts.hostname or parts.scheme not in schemes or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("must be an https address, or http on loopback, without user, query and fragment")
        return value.rstrip("/")

    @field_validator("public_url")
    @classmethod
    def _check_is_root(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).path:
            raise ValueError("must be the host only, without a path")
        return value

    @field_validator("oidc_groups")
    @classmethod
    def _check_groups(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if not all(GROUP.fullmatch(value) for value in values):
            raise ValueError(f"must be `group=project:ROLE`, separated by commas; a ROLE is {', '.join(Role)}")
        return values

    @property
    def group_roles(self) -> list[GroupRole]:
        matches = [GROUP.fullmatch(value) for value in self.oidc_groups]
        return [GroupRole(each["group"], each["project"], Role(each["role"])) for each in matches if each is not None]
