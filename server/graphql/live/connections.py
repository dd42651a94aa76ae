"""Open connections and operations, counted per token, and their limits."""

from collections import Counter
from typing import Protocol
from uuid import UUID

from server.auth.caller import Caller
from server.config import Settings


class Connection(Protocol):
    """A socket, or a stream of server-sent events."""

    caller: Caller | None

    def check(self, moment: float) -> None:
        """Check timeouts, expiry and pings."""
        ...

    def close_unauthorized(self) -> None:
        """Close it: the token has expired or was revoked."""
        ...

    def close_for_restart(self) -> None:
        """Close it so that the client reconnects elsewhere."""
        ...


OPERATION_ID_MAX = 128  # characters; the id is repeated in every message


class Connections:
    """Counts that connections keep by calling these methods."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.open: dict[Connection, None] = {}
        self._of_token: Counter[UUID] = Counter()
        self._operations: Counter[UUID] = Counter()

    @property
    def is_full(self) -> bool:
        return len(self.open) >= self._settings.sockets_per_process

    def add(self, connection: Connection) -> None:
        self.open[connection] = None

    def count_connection(self, caller: Caller) -> bool:
        """Count a connection of that token; False when it has too many."""
        if self._of_token[caller.token_id] >= self._settings.sockets_per_token:
            return False
        self._of_token[caller.token_id] += 1
        return True

    def remove(self, connection: Connection, *, was_admitted: bool) -> None:
        self.open.pop(connection, None)
        if was_admitted and connection.caller is not None:
            _decrement(self._of_token, connection.caller.token_id)

    def begin_operation(self, caller: Caller) -> bool:
        """Count an operation of that token; False when it has too many."""
        if self._operations[caller.token_id] >= self._settings.operations_per_token:
            return False
        self._operations[caller.token_id] += 1
        return True

    def end_operation(self, caller: Caller) -> None:
        _decrement(self._operations, caller.token_id)

    @property
    def operations(self) -> int:
        return self._operations.total()

    def tokens(self) -> list[UUID]:
        return list(self._of_token)


def _decrement(counter: Counter[UUID], token_id: UUID) -> None:
    counter[token_id] -= 1
    if counter[token_id] <= 0:
        del counter[token_id]
