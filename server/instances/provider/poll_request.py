"""One request of a client to the poller, which outlives the job that made it, and an entry that may answer it."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from datetime import datetime

from server.errors import NovitaError, ProviderError
from server.instances.provider.states import MachineState, state_of
from server.novita.models import RemoteInstance

RESULT_TTL = 120.0  # seconds; longer than a client is asked to wait


@dataclass(slots=True)
class PollRequest:
    """A client's request and, once it is there, its result."""

    novita_id: str
    asked_at: float
    needs_addresses: bool = True
    done: asyncio.Event = field(default_factory=asyncio.Event)
    remote: RemoteInstance | None = None
    error: NovitaError | None = None
    finished_at: float = 0.0

    def finish(self, remote: RemoteInstance | None, error: NovitaError | None) -> None:
        self.remote, self.error = remote, error
        self.finished_at = time.monotonic()
        self.done.set()

    async def wait(self, seconds: float) -> None:
        """Until it is done, or that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.done.wait()

    @property
    def is_expired(self) -> bool:
        return self.done.is_set() and time.monotonic() - self.finished_at > RESULT_TTL

    def result(self) -> RemoteInstance:
        if self.remote is not None:
            return self.remote
        raise self.error or ProviderError("the poll returned nothing")


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A machine from a page of the list. `asked_at` is before the call."""

    remote: RemoteInstance
    asked_at: datetime
    lacks_addresses: bool


def has_no_addresses(remote: RemoteInstance) -> bool:
    """List items may lack addresses, as the provider's documentation says; a running one is then polled singly."""
    return state_of(remote) is MachineState.UP and not any(endpoint.address for endpoint in remote.endpoints)
