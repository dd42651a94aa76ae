"""One request of a client to the poller, which outlives the job that made it, and who waits for news of a machine."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from server.clock import now
from server.db.outages import DATABASE_ERRORS
from server.errors import NovitaError, PilotlightError, ProviderError
from server.instances.provider.states import MachineState, state_of
from server.novita.models import RemoteInstance

log = structlog.get_logger(__name__)

Wake = Callable[[Collection[Hashable]], Awaitable[None]]

PAGE_TTL = timedelta(seconds=15)  # how long entries of a page serve later requests
RESULT_TTL = 120.0  # seconds; longer than a client is asked to wait
FOLLOWED_FOR = 120.0  # seconds after the last poll
# Machines that are looked at singly until they have ended; seconds until the first look, because none has ended right
# after the call, and until each later one.
END_LOOKS_MAX = 3
FIRST_END_LOOK, NEXT_END_LOOK = 1.5, 0.75


class NotYet(PilotlightError):
    """Too many polls are waiting. Poll again after this time; the result will probably be there."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"poll again after {after.total_seconds():.1f} s")
        self.after = after


@dataclass(slots=True)
class PollRequest:
    """A client's request and, once it is there, its result."""

    novita_id: str
    asked_at: float
    needs_addresses: bool = True
    is_urgent: bool = False
    leaves_list: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)
    remote: RemoteInstance | None = None
    error: NovitaError | None = None
    finished_at: float = 0.0

    def finish(self, remote: RemoteInstance | None, error: NovitaError | None) -> None:
        self.remote, self.error = remote, error
        self.finished_at = time.monotonic()
        self.done.set()

    def renew(self, remote: RemoteInstance, *, lacks_addresses: bool) -> None:
        """Replace a result that was not fetched yet by a newer one."""
        if self.remote is not None and not (lacks_addresses and self.needs_addresses):
            self.finish(remote, None)

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


class PageEntries:
    """What the last pages show, by machine."""

    def __init__(self) -> None:
        self._entries: dict[str, PageEntry] = {}

    def put(self, entry: PageEntry) -> None:
        self._entries[entry.remote.id] = entry

    def find(
        self, novita_id: str, *, newer_than: datetime | None = None, needs_addresses: bool = False
    ) -> RemoteInstance | None:
        """The machine, if a page has shown it lately, after that time, and with what is needed."""
        oldest = now() - PAGE_TTL
        entry = self._entries.get(novita_id)
        if entry is None or entry.asked_at <= (oldest if newer_than is None else max(newer_than, oldest)):
            return None
        return None if needs_addresses and entry.lacks_addresses else entry.remote

    def forget_old(self) -> None:
        oldest = now() - PAGE_TTL
        self._entries = {id: each for id, each in self._entries.items() if each.asked_at > oldest}


def has_no_addresses(remote: RemoteInstance) -> bool:
    """List items may lack addresses, as the provider's documentation says; a running one is then polled singly."""
    return state_of(remote) is MachineState.UP and not any(endpoint.address for endpoint in remote.endpoints)


class Followers:
    """Which clients follow a machine, and which status each was shown last. Some were asked to poll later: if there is
    news before that, they are woken."""

    def __init__(self, wake: Wake | None) -> None:
        self._wake = wake
        self._shown: dict[str, dict[Hashable, tuple[str | None, float]]] = {}  # with the time of the last poll
        self._unaware: set[Hashable] = set()

    def note(self, novita_id: str, client: Hashable) -> None:
        """The client polled, and has to poll again for a result."""
        clients = self._shown.setdefault(novita_id, {})
        clients[client] = (clients.get(client, (None, 0.0))[0], time.monotonic())

    def show(self, remote: RemoteInstance, client: Hashable) -> RemoteInstance:
        """The client polled, and is shown this."""
        self._shown.setdefault(remote.id, {})[client] = (remote.status, time.monotonic())
        return remote

    def has_shown(self, novita_id: str, client: Hashable) -> bool:
        return self._shown.get(novita_id, {}).get(client, (None, 0.0))[0] is not None

    def see(self, novita_id: str, status: str | None) -> Iterable[Hashable]:
        """The provider shows this status, or None; returns the clients that follow the machine."""
        clients = self._shown.get(novita_id, {})
        self._unaware.update(client for client, (shown, _) in clients.items() if shown != status or status is None)
        return clients

    async def wake(self) -> None:
        """Let the clients that have not been shown what was seen poll now."""
        unaware, self._unaware = self._unaware, set()
        if unaware and self._wake is not None:
            try:
                await self._wake(unaware)
            except DATABASE_ERRORS as error:  # they come by themselves, only later
                log.warning("poller.not_woken", error=type(error).__name__)

    def forget_old(self) -> None:
        oldest = time.monotonic() - FOLLOWED_FOR
        for novita_id, clients in list(self._shown.items()):
            self._shown[novita_id] = kept = {client: each for client, each in clients.items() if each[1] > oldest}
            if not kept:
                del self._shown[novita_id]


class EndLooks:
    """Single looks at machines that are followed to their end, a few at once: a user waits, and pages come seldom."""

    def __init__(self, look: Callable[[str], Awaitable[None]]) -> None:
        self._look = look
        self._tasks: dict[str, tuple[asyncio.Task[None], float]] = {}

    def begin(self, request: PollRequest, *, was_shown: bool) -> float | None:
        """Look a little later, unless a page shows the machine before; returns in how many seconds.

        None if too many are looked at. `was_shown`: the client has seen that it is on its way.
        """
        if request.novita_id not in self._tasks:
            if len(self._tasks) >= END_LOOKS_MAX:
                return None
            at = request.asked_at + (NEXT_END_LOOK if was_shown else FIRST_END_LOOK)
            self._tasks[request.novita_id] = asyncio.create_task(self._look_at(request.novita_id, at)), at
        return max(0.0, self._tasks[request.novita_id][1] - time.monotonic())

    async def _look_at(self, novita_id: str, at: float) -> None:
        try:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            await self._look(novita_id)
        finally:
            del self._tasks[novita_id]

    async def close(self) -> None:
        tasks = [task for task, _ in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
