"""How much of everything a watcher may have."""

from dataclasses import dataclass
from datetime import timedelta

from server.config import Settings


@dataclass(frozen=True, slots=True)
class Limits:
    """From the settings of the same names; the values here are for whoever has none."""

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
        return cls(
            socket_init_timeout=settings.socket_init_timeout,
            socket_ping_interval=settings.socket_ping_interval,
            socket_token_check=settings.socket_token_check,
            socket_message_bytes=settings.socket_message_bytes,
            sockets_per_process=settings.sockets_per_process,
            sockets_per_token=settings.sockets_per_token,
            operations_per_socket=settings.operations_per_socket,
            operations_per_token=settings.operations_per_token,
        )


LONGEST_ID = 128  # characters of an operation's id: it is repeated in every message
