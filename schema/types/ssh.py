"""How to log in to an instance, as callers see it."""

import strawberry
from pydantic import SecretStr

from server.instances import ssh


@strawberry.type(description="How to log in to an instance by SSH. All of it is another after every start.")
class SshAccess:
    secret: strawberry.Private[SecretStr | None]  # so that printing one of these prints no password
    command: str = strawberry.field(description="The command to type, such as `ssh -p 32787 root@host`.")
    is_running: bool = strawberry.field(description="Whether the provider says that its SSH server is up.")

    @strawberry.field(description="The password; null where the provider tells none. Pilotlight does not keep it.")
    def password(self) -> str | None:
        return None if self.secret is None else self.secret.get_secret_value()

    @classmethod
    def of(cls, access: ssh.SshAccess) -> "SshAccess":
        return cls(secret=access.password, command=access.command, is_running=access.is_running)
