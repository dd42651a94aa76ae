"""How many connections the process keeps, in all and of one address whose caller is not known yet."""

import resource
import time
from collections import Counter

import structlog

log = structlog.get_logger(__name__)

# Descriptors that connections never take: for the database, provider calls, probes, webhooks and files. A quarter of a
# large limit, because a worker in the same process has a thousand outgoing connections at times.
DESCRIPTORS_RESERVED_MIN = 128
LOG_INTERVAL = 10.0  # seconds; a flood must not fill the log


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
        self._logged_at: dict[str, float] = {}
        self._bad_requests: Counter[str] = Counter()

    def enter(self, address: str | None) -> bool:
        """Count a connection; False if it must be refused. Without an address it is a trusted proxy's."""
        if self.open >= self.most:
            self._refuse(address)
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
            self._refuse(address)
            return False
        self._strangers[address] += 1
        return True

    def admit(self, address: str | None) -> None:
        """The caller is known: the connection is not a stranger's any more."""
        if address is None:
            return
        self._strangers[address] -= 1
        if self._strangers[address] <= 0:
            del self._strangers[address]

    def leave(self, address: str | None, *, was_admitted: bool) -> None:
        self.open -= 1
        if not was_admitted:
            self.admit(address)

    def _refuse(self, address: str | None) -> None:
        self.refused += 1
        if self._is_to_be_logged("http.connections_refused"):
            log.warning("http.connections_refused", address=address, open=self.open, refused=self.refused)

    def note_bad_request(self, code: str, address: str) -> None:
        """A request was refused before the application was reached: the first of each interval is logged."""
        self._bad_requests[code] += 1
        if self._is_to_be_logged(code):
            log.warning("http.request_refused", code=code, address=address, refused=self._bad_requests[code])

    def _is_to_be_logged(self, what: str) -> bool:
        moment = time.monotonic()
        if what in self._logged_at and moment - self._logged_at[what] < LOG_INTERVAL:
            return False
        self._logged_at[what] = moment
        return True


class Visit:
    """One connection's place in the counts, which a WebSocket takes over from its handshake."""

    __slots__ = ("_address", "_is_over", "_limits", "is_admitted")

    def __init__(self, limits: ConnectionLimits, address: str | None) -> None:
        self._limits = limits
        self._address = address
        self._is_over = False
        self.is_admitted = False

    def admit(self) -> None:
        if not self.is_admitted and not self._is_over:
            self.is_admitted = True
            self._limits.admit(self._address)

    def pass_to(self, address: str | None) -> bool:
        """The next request of a proxy's connection is another client's; False if that one has too many."""
        if self._is_over:
            return True
        if not self.is_admitted:
            self._limits.admit(self._address)
        self.is_admitted = False
        has_room = self._limits.add_stranger(address)
        self._address = address if has_room else None
        return has_room

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._limits.leave(self._address, was_admitted=self.is_admitted)
