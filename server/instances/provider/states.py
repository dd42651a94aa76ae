"""The provider's status words and the machine states they stand for. An unknown word means: poll again later."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from server.novita.models import Endpoint
from server.spend.machine_times import MachineTimes


class MachineState(Enum):
    """The state of a machine at the provider."""

    COMING_UP = "on its way up"
    UP = "running"
    GOING_DOWN = "on its way down"
    DOWN = "exited"
    GOING_AWAY = "being removed"
    GONE = "removed"
    UNKNOWN = "an unknown word"


STATES: dict[str, MachineState] = {
    "pending": MachineState.COMING_UP,
    "toCreate": MachineState.COMING_UP,
    "creating": MachineState.COMING_UP,
    "pulling": MachineState.COMING_UP,
    "toStart": MachineState.COMING_UP,
    "starting": MachineState.COMING_UP,
    "toRestart": MachineState.COMING_UP,
    "restarting": MachineState.COMING_UP,
    "toReset": MachineState.COMING_UP,
    "resetting": MachineState.COMING_UP,
    "migrating": MachineState.COMING_UP,
    "running": MachineState.UP,
    "toStop": MachineState.GOING_DOWN,
    "stopping": MachineState.GOING_DOWN,
    "freezing": MachineState.GOING_DOWN,
    "exited": MachineState.DOWN,
    "toRemove": MachineState.GOING_AWAY,
    "removing": MachineState.GOING_AWAY,
    "removed": MachineState.GONE,
}


class MachineView(Protocol):
    """The fields of a machine that matter here."""

    @property
    def status(self) -> str: ...

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...

    @property
    def spot_reclaim_at(self) -> datetime | None: ...

    @property
    def last_started_at(self) -> datetime | None: ...

    @property
    def last_stopped_at(self) -> datetime | None: ...

    @property
    def price_e5(self) -> int | None: ...


def state_of(remote: MachineView) -> MachineState:
    return STATES.get(remote.status, MachineState.UNKNOWN)


def times_of(remote: MachineView) -> MachineTimes:
    """The times for the ledger. They are in whole seconds: what runs, and stopped in the second in which it started,
    has started last."""
    stopped_at = remote.last_stopped_at
    if state_of(remote) is MachineState.UP and stopped_at == remote.last_started_at:
        stopped_at = None
    return MachineTimes(remote.last_started_at, stopped_at, remote.price_e5)


def is_unknown_run(remote: MachineView) -> bool:
    """Whether it is shown with an unknown word and was started: its run may not be in the ledger."""
    return state_of(remote) is MachineState.UNKNOWN and times_of(remote).run_began_at is not None


def observed_fields(remote: MachineView) -> dict[str, Any]:
    """What to write after a poll, whatever the state: the columns, and the times for the ledger."""
    return {**observed_columns(remote), "times": times_of(remote)}


def observed_columns(remote: MachineView) -> dict[str, Any]:
    return {
        "novita_status": remote.status,
        "endpoints": [
            {"port": endpoint.port, "type": endpoint.type, "address": endpoint.address}
            for endpoint in remote.endpoints
            if endpoint.address
        ],
        "spot_reclaim_at": remote.spot_reclaim_at,
        "missing_since": None,
    }
