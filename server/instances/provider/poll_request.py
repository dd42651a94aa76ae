"""One request of a client to the poller, which outlives the job that made it."""

import asyncio
import time
from dataclasses import dataclass, field

from server.errors import NovitaError, ProviderError
from server.novita.models import RemoteInstance


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

    def result(self) -> RemoteInstance:
        if self.remote is not None:
            return self.remote
        raise self.error or ProviderError("the poll returned nothing")
