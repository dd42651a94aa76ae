"""How much of everything a watcher may have."""

from dataclasses import dataclass, fields
from datetime import timedelta

from server.config import Settings


@dataclass(frozen=True, slots=True)
class Limits:
    """A setting of the same name goes before the value here."""

    socket_init_timeout: timedelta = timedelta(seconds=10)
    socket_ping_interval: timedelta = timedelta(seconds=25)  # below the minute after which proxies cut idle sockets
    socket_token_check: timedelta = timedelta(seconds=5)
    socket_message_bytes: int = 256 * 1024
    sockets_per_process: int = 20_000
    sockets_per_token: int = 1_000
    operations_per_socket: int = 1_000
    operations_per_token: int = 5_000

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        return cls(**settings.model_dump(include={field.name for field in fields(cls)}))


LONGEST_ID = 128  # characters of an operation's id: it is repeated in every message
