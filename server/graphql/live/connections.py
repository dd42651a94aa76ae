"""Open connections and operations, counted per token and project, and their limits."""

from collections import Counter
from typing import Protocol
from uuid import UUID

from server.auth.caller import Caller
from server.config import Settings


class OpenConnection(Protocol):
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


class CallerCounts:
    """What is open, per token and per project."""

    def __init__(self, token_max: int, project_max: int) -> None:
        self._token_max = token_max
        self._project_max = project_max
        self.of_tokens: Counter[UUID] = Counter()
        self._of_projects: Counter[UUID] = Counter()

    def add(self, caller: Caller) -> bool:
        """Count one more; False when there are too many."""
        is_full = (
            self.of_tokens[caller.token_id] >= self._token_max
            or self._of_projects[caller.project_id] >= self._project_max
        )
        if is_full:
            return False
        self.of_tokens[caller.token_id] += 1
        self._of_projects[caller.project_id] += 1
        return True

    def remove(self, caller: Caller) -> None:
        _decrement(self.of_tokens, caller.token_id)
        _decrement(self._of_projects, caller.project_id)


class Connections:
    """Counts that connections keep by calling these methods."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.open: dict[OpenConnection, None] = {}
        self._connections = CallerCounts(settings.sockets_per_token, settings.sockets_per_project)
        self._operations = CallerCounts(settings.operations_per_token, settings.operations_per_project)

    @property
    def is_full(self) -> bool:
        return len(self.open) >= self._settings.sockets_per_process

    def add(self, connection: OpenConnection) -> None:
        self.open[connection] = None

    def count_connection(self, caller: Caller) -> bool:
        """Count a connection of that caller; False when its token or project has too many."""
        return self._connections.add(caller)

    def remove(self, connection: OpenConnection, *, was_admitted: bool) -> None:
        self.open.pop(connection, None)
        if was_admitted and connection.caller is not None:
            self._connections.remove(connection.caller)

    def begin_operation(self, caller: Caller) -> bool:
        """Count an operation of that caller; False when its token or project has too many."""
        return self._operations.add(caller)

    def end_operation(self, caller: Caller) -> None:
        self._operations.remove(caller)

    @property
    def operations(self) -> int:
        return self._operations.of_tokens.total()

    def tokens(self) -> list[UUID]:
        return list(self._connections.of_tokens)


def _decrement(counter: Counter[UUID], key: UUID) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
