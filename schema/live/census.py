"""Who is connected: how many by each token, and who has to go."""

from collections import Counter
from typing import Protocol
from uuid import UUID

from schema.live.limits import Limits
from server.auth.caller import Caller


class Connection(Protocol):
    """A socket, or a stream of server-sent events."""

    caller: Caller | None

    def look(self, moment: float) -> None:
        """Do what is due by the clock."""
        ...

    def expel(self) -> None:
        """Its token is no longer good."""
        ...

    def say_goodbye(self) -> None:
        """The process stops: make the client come back elsewhere."""
        ...


class Census:
    """Counts, kept by those who are counted."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.connections: dict[Connection, None] = {}
        self._of_token: Counter[UUID] = Counter()
        self._operations: Counter[UUID] = Counter()

    @property
    def is_full(self) -> bool:
        return len(self.connections) >= self._limits.sockets_per_process

    def enter(self, connection: Connection) -> None:
        self.connections[connection] = None

    def admit(self, caller: Caller) -> bool:
        """Count a connection of that token; False when it has too many."""
        if self._of_token[caller.token_id] >= self._limits.sockets_per_token:
            return False
        self._of_token[caller.token_id] += 1
        return True

    def leave(self, connection: Connection, *, was_admitted: bool) -> None:
        self.connections.pop(connection, None)
        if was_admitted and connection.caller is not None:
            _less(self._of_token, connection.caller.token_id)

    def begin(self, caller: Caller) -> bool:
        """Count an operation of that token; False when it has too many."""
        if self._operations[caller.token_id] >= self._limits.operations_per_token:
            return False
        self._operations[caller.token_id] += 1
        return True

    def end(self, caller: Caller) -> None:
        _less(self._operations, caller.token_id)

    @property
    def operations(self) -> int:
        return self._operations.total()

    def tokens(self) -> list[UUID]:
        return list(self._of_token)


def _less(counter: Counter[UUID], token_id: UUID) -> None:
    counter[token_id] -= 1
    if counter[token_id] <= 0:
        del counter[token_id]
