"""What the provider's word for a state means to us. The ONE table; an unknown word means: look again later."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from server.novita.wire import Endpoint


class Seen(Enum):
    """What a look at the provider tells about an instance."""

    COMING_UP = "on its way up"
    UP = "running"
    GOING_DOWN = "on its way down"
    DOWN = "exited"
    GOING_AWAY = "being removed"
    GONE = "removed"
    UNKNOWN = "a word that we don't know"


SEEN: dict[str, Seen] = {
    "pending": Seen.COMING_UP,
    "toCreate": Seen.COMING_UP,
    "creating": Seen.COMING_UP,
    "pulling": Seen.COMING_UP,
    "toStart": Seen.COMING_UP,
    "starting": Seen.COMING_UP,
    "toRestart": Seen.COMING_UP,
    "restarting": Seen.COMING_UP,
    "toReset": Seen.COMING_UP,
    "resetting": Seen.COMING_UP,
    "migrating": Seen.COMING_UP,
    "running": Seen.UP,
    "toStop": Seen.GOING_DOWN,
    "stopping": Seen.GOING_DOWN,
    "freezing": Seen.GOING_DOWN,
    "exited": Seen.DOWN,
    "toRemove": Seen.GOING_AWAY,
    "removing": Seen.GOING_AWAY,
    "removed": Seen.GONE,
}


class Shown(Protocol):
    """What the provider shows of a machine, as far as it matters here."""

    @property
    def status(self) -> str: ...

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...

    @property
    def spot_reclaim_at(self) -> datetime | None: ...


def seen(remote: Shown) -> Seen:
    return SEEN.get(remote.status, Seen.UNKNOWN)


def facts(remote: Shown) -> dict[str, Any]:
    """What we keep of a look, whatever it means."""
    return {
        "novita_status": remote.status,
        "endpoints": [
            {"port": endpoint.port, "type": endpoint.type, "address": endpoint.address}
            for endpoint in remote.endpoints
            if endpoint.address
        ],
        "spot_reclaim_at": remote.spot_reclaim_at,
    }
