"""Types of logs and of access to a machine."""

import strawberry
from pydantic import SecretStr

from schema.enums import described
from schema.types.instance import SshAccess
from server.instances.queries.access import Access
from server.instances.queries.log import LogKind, LogPart

described(
    LogKind,
    description="Which log of a machine.",
    values={"CONTAINER": "The output of the container.", "SYSTEM": "What the provider did with the machine."},
)


@strawberry.type(description="A part of a log. Pilotlight does not store it.")
class InstanceLog:
    text: str = strawberry.field(description="The text; lines end with a line feed.")
    begin: int = strawberry.field(description="Where the text begins, in bytes from the log's beginning.")
    end: int = strawberry.field(
        description="Where it ends. The next message of the subscription begins here, unless the log was begun anew or "
        "the client read too slowly."
    )

    @classmethod
    def of(cls, part: LogPart) -> "InstanceLog":
        return cls(text=part.text, begin=part.begin, end=part.end)


@strawberry.type(description="Jupyter on an instance. The address may carry a token and changes with every start.")
class JupyterAccess:
    address: str = strawberry.field(description="URL.")
    port: int | None = strawberry.field(description="Port inside the instance.")
    is_running: bool = strawberry.field(description="Whether it is running, according to the provider.")


@strawberry.type(description="The provider's terminal in a browser. It changes with every start.")
class WebTerminalAccess:
    secret: strawberry.Private[SecretStr | None]  # not printed by repr()
    address: str = strawberry.field(description="URL.")
    username: str | None = strawberry.field(description="User name, if the provider gives one.")
    is_running: bool = strawberry.field(description="Whether it is running, according to the provider.")

    @strawberry.field(description="The password; null if the provider returns none. Pilotlight does not store it.")
    def password(self) -> str | None:
        return None if self.secret is None else self.secret.get_secret_value()


@strawberry.type(description="How to connect to a running instance, read from the provider now.")
class InstanceAccess:
    ssh: SshAccess | None = strawberry.field(description="SSH; null if the provider gives no access.")
    jupyter: JupyterAccess | None = strawberry.field(description="Jupyter; null if it does not run.")
    web_terminal: WebTerminalAccess | None = strawberry.field(description="Web terminal; null if there is none.")

    @classmethod
    def of(cls, access: Access) -> "InstanceAccess":
        jupyter, terminal = access.jupyter, access.web_terminal
        return cls(
            ssh=None if access.ssh is None else SshAccess.of(access.ssh),
            jupyter=None
            if jupyter is None or jupyter.address is None
            else JupyterAccess(address=jupyter.address, port=jupyter.port, is_running=jupyter.is_running),
            web_terminal=None
            if terminal is None or terminal.address is None
            else WebTerminalAccess(
                secret=terminal.password,
                address=terminal.address,
                username=terminal.username,
                is_running=terminal.is_running,
            ),
        )
