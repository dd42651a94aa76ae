"""How many connections the process keeps, and how many bytes wait in them, in all and of one address or project."""

import resource
import time
from collections import Counter
from typing import Any
from uuid import UUID

import structlog

log = structlog.get_logger(__name__)

# Descriptors that connections never take: for the database, provider calls, probes, webhooks and files. A quarter of a
# large limit, because a worker in the same process has a thousand outgoing connections at times.
DESCRIPTORS_RESERVED_MIN = 128
LOG_INTERVAL = 10.0  # seconds; a flood must not fill the log
# Bytes that are not parsed yet, or not read by the client. A connection with a few is never refused: an attacker with
# many addresses must not take the room of clients that send one request and read its response.
WAITING_MAX = 32 * 1024 * 1024
WAITING_PER_OWNER_MAX = 8 * 1024 * 1024
WAITING_ALLOWED = 4096

# What a connection is counted for: an address, a project, or None for a trusted proxy.
Owner = str | UUID | None


def connections_max() -> int:
    """As many as the limit of open files allows beside the reserve."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    return max(1, limit - max(DESCRIPTORS_RESERVED_MIN, limit // 4))


class ConnectionLimits:
    """Counts of one listening socket. A connection is a stranger's until a valid token has come over it."""

    def __init__(self, *, strangers_per_address: int, most: int | None = None) -> None:
        """0 strangers means no limit for them."""
        self.most = connections_max() if most is None else most
        self._strangers_max = strangers_per_address
        self.open = 0
        self.refused = 0
        self._strangers: Counter[str] = Counter()
        self._callers: Counter[UUID] = Counter()
        self._waiting_in_all = 0
        self._waiting: Counter[Owner] = Counter()
        self._logged_at: dict[str, float] = {}
        self._bad_requests: Counter[str] = Counter()

    def enter(self, address: str | None) -> bool:
        """Count a connection; False if it must be refused. Without an address it is a trusted proxy's."""
        if self.open >= self.most:
            self.note_refusal(address)
            return False
        if not self.add_stranger(address):
            return False
        self.open += 1
        return True

    def add_stranger(self, address: str | None) -> bool:
        """Count a connection as a stranger's; False if the address has too many."""
        if address is None:
            return True
        if self._strangers_max and self._strangers[address] >= self._strangers_max:
            self.note_refusal(address)
            return False
        self._strangers[address] += 1
        return True

    def remove_stranger(self, address: str | None) -> None:
        if address is not None:
            _decrement(self._strangers, address)

    def add_caller(self, project_id: UUID) -> bool:
        """Count a connection as a project's; False if it has a quarter of all, so that others have room."""
        if self._callers[project_id] >= max(1, self.most // 4):
            return False
        self._callers[project_id] += 1
        return True

    def remove_caller(self, project_id: UUID) -> None:
        _decrement(self._callers, project_id)

    def leave(self, address: str | None, *, was_admitted: bool) -> None:
        self.open -= 1
        if not was_admitted:
            self.remove_stranger(address)

    def add_waiting(self, owner: Owner, more: int) -> bool:
        """Count bytes that wait; False if there are too many of the owner or in all."""
        self._waiting_in_all += more
        self._waiting[owner] += more
        if not self._waiting[owner]:
            del self._waiting[owner]
            return True
        is_in_share = owner is None or self._waiting[owner] <= WAITING_PER_OWNER_MAX
        return is_in_share and self._waiting_in_all <= WAITING_MAX

    def note_refusal(self, address: str | None) -> None:
        self.refused += 1
        if self._begin_log_interval("http.connections_refused"):
            log.warning("http.connections_refused", address=address, open=self.open, refused=self.refused)

    def note_bad_request(self, code: str, address: str) -> None:
        """A request was refused before the application was reached: the first of each interval is logged."""
        self._bad_requests[code] += 1
        if self._begin_log_interval(code):
            log.warning("http.request_refused", code=code, address=address, refused=self._bad_requests[code])

    def _begin_log_interval(self, what: str) -> bool:
        """False while one is open: it had its line."""
        moment = time.monotonic()
        if what in self._logged_at and moment - self._logged_at[what] < LOG_INTERVAL:
            return False
        self._logged_at[what] = moment
        return True


class Visit:
    """One connection's place in the counts, which a WebSocket takes over from its handshake."""

    __slots__ = ("_address", "_is_over", "_limits", "_project_id", "_waiting", "is_admitted")

    def __init__(self, limits: ConnectionLimits, address: str | None) -> None:
        self._limits = limits
        self._address = address
        self._project_id: UUID | None = None
        self._is_over = False
        self._waiting = 0
        self.is_admitted = False

    def admit(self, project_id: UUID) -> None:
        """The caller is known: the connection is not a stranger's any more, unless its project has too many."""
        if self.is_admitted or self._is_over:
            return
        self.is_admitted = True
        if self._limits.add_caller(project_id):
            self._limits.remove_stranger(self._address)
            self._move(self._address, project_id)

    def pass_to(self, address: str | None) -> bool:
        """The next request of a proxy's connection is another client's; False if that one has too many."""
        if self._is_over:
            return True
        self._leave_owner()
        has_room = self._limits.add_stranger(address)
        self._move(address if has_room else None, None)
        self.is_admitted = False
        return has_room

    def hold(self, size: int) -> bool:
        """Count the bytes that wait in this connection; False if it must not keep so many beside all others."""
        if size == self._waiting or self._is_over:
            return True
        more, self._waiting = size - self._waiting, size
        has_room = self._limits.add_waiting(self._owner, more) or more < 0 or size <= WAITING_ALLOWED
        if not has_room:
            self._limits.note_refusal(self._address)
        return has_room

    def end(self) -> None:
        if not self._is_over:
            self.hold(0)
            self._leave_owner()
            self._is_over = True
            self._limits.leave(self._address, was_admitted=True)

    @property
    def _owner(self) -> Owner:
        return self._address if self._project_id is None else self._project_id

    def _move(self, address: str | None, project_id: UUID | None) -> None:
        waiting = self._waiting
        self.hold(0)
        self._address, self._project_id = address, project_id
        self.hold(waiting)

    def _leave_owner(self) -> None:
        if self._project_id is None:
            self._limits.remove_stranger(self._address)
        else:
            self._limits.remove_caller(self._project_id)


def _decrement(counts: Counter[Any], key: Any) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
