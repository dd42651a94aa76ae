"""Registers the handler of each job kind, and gives handlers their context."""

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession
from structlog.contextvars import bind_contextvars

import server.jobs
from server.catalog.catalog import Catalog
from server.config import Settings
from server.db.database import Database
from server.db.persistent_writes import PersistentWrites
from server.encryption import Cipher
from server.errors import StartupProblem
from server.instances.create_line import CreateLine
from server.instances.provider.absence import Absences
from server.instances.provider.marker_lookup import MarkerLookup
from server.instances.provider.poller import InstancePoller, NotYet
from server.instances.queries.for_jobs import CheckViews, MonitorViews
from server.lifetimes.together import StepBatcher
from server.novita.client import NovitaClient
from server.novita.models import RemoteInstance
from server.novita.transport.rate_limiter import Turn
from server.probes.probe import Prober
from server.probes.reachability import Reachability
from server.queue import kinds
from server.queue.claim import Claim
from server.queue.handler import Again, Done, Failure, Handler, Outcome
from server.queue.kinds import Work
from server.webhooks.sender import Sender

log = structlog.get_logger(__name__)

W = TypeVar("W", bound=Work)


@dataclass(frozen=True, slots=True)
class JobServices:
    """The objects that all handlers of a process share."""

    database: Database
    novita: NovitaClient
    catalog: Catalog
    prober: Prober
    sender: Sender
    settings: Settings
    poller: InstancePoller
    monitor_views: MonitorViews = field(init=False)
    check_views: CheckViews = field(init=False)
    markers: MarkerLookup = field(init=False)
    absences: Absences = field(init=False)
    cipher: Cipher = field(init=False)
    reachability: Reachability = field(init=False)
    line: CreateLine = field(init=False)
    lifetime_steps: StepBatcher = field(init=False)
    persistent_writes: PersistentWrites = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "monitor_views", MonitorViews(self.database))
        object.__setattr__(self, "check_views", CheckViews(self.database))
        object.__setattr__(self, "markers", MarkerLookup(self.novita))
        object.__setattr__(self, "cipher", Cipher.of(self.settings.encryption_key))
        absences = Absences(self.database, self.novita, grace=self.settings.gone_grace)
        object.__setattr__(self, "absences", absences)
        object.__setattr__(self, "reachability", Reachability())
        line = CreateLine(self.database, rate_limit=self.settings.novita_rate_limit)
        object.__setattr__(self, "line", line)
        steps = StepBatcher(self.database, retry=self.settings.lifetime_retry)
        object.__setattr__(self, "lifetime_steps", steps)
        object.__setattr__(self, "persistent_writes", PersistentWrites(self.database))


@dataclass(frozen=True, slots=True)
class JobContext:
    """The services and the claim of one run of a handler."""

    services: JobServices
    claim: Claim

    @property
    def novita(self) -> NovitaClient:
        """The client; with a turn, its calls do not wait for the rate limit."""
        turn = self.claim.turn
        return self.services.novita.with_turn(turn) if isinstance(turn, Turn) else self.services.novita

    @property
    def catalog(self) -> Catalog:
        return self.services.catalog

    @property
    def settings(self) -> Settings:
        return self.services.settings

    async def poll(
        self,
        novita_id: str,
        *,
        newer_than: datetime | None = None,
        needs_addresses: bool = True,
        is_urgent: bool = False,
        leaves_list: bool = False,
    ) -> RemoteInstance:
        """Read a machine at the provider, in one call with other handlers that poll now. Raises NovitaError.

        Also raises NotYet, which ends this run; another begins when the response is there. So a handler polls before
        it changes anything.
        """
        return await self.services.poller.poll(
            novita_id,
            client=self.claim.job_id,
            project_id=self.claim.project_id,
            newer_than=newer_than,
            needs_addresses=needs_addresses,
            is_urgent=is_urgent,
            leaves_list=leaves_list,
            kind=self.claim.kind,
        )

    def shown_lately(self, novita_id: str, *, since: datetime) -> RemoteInstance | None:
        """What a page has shown of a machine since that time, and in the last seconds; only while calls are short."""
        return self.services.poller.pages.find(novita_id, newer_than=since) if self.novita.is_short_of_calls else None

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        async with self.services.database.read() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """A transaction that commits only while this run holds the job."""
        async with self.claim.write() as session:
            yield session

    async def record(self, fact: Callable[[AsyncSession], Awaitable[object]], **words: object) -> None:
        """Write what only this run knows, such as when the provider accepted a call, also after an outage. `words` say
        it in the log if it is lost."""
        await self.services.persistent_writes.write(fact, first=self.write, words=words)


Run = Callable[[Any, JobContext], Awaitable[Outcome]]
Failed = Callable[[AsyncSession, Any, Failure], Awaitable[None]]

_registered: dict[type[Work], tuple[Run, Failed | None]] = {}


def handles(
    kind: type[W], *, failed: Failed | None = None
) -> Callable[[Callable[[W, JobContext], Awaitable[Outcome]]], Callable[[W, JobContext], Awaitable[Outcome]]]:
    """Register the handler of a kind; `failed` runs in the transaction that ends the job as failed."""

    def register(run: Callable[[W, JobContext], Awaitable[Outcome]]) -> Callable[[W, JobContext], Awaitable[Outcome]]:
        if kind in _registered:
            raise TypeError(f"{kind.__name__} has two handlers")
        _registered[kind] = (run, failed)
        return run

    return register


def all_handlers(services: JobServices) -> dict[str, Handler]:
    """The handlers of all kinds. Imports every module of this package, so a new kind is one new file."""
    for module in pkgutil.walk_packages(server.jobs.__path__, f"{server.jobs.__name__}."):
        importlib.import_module(module.name)
    return {kind.kind: _bound(run, failed, services) for kind, (run, failed) in _registered.items()}


def check_handled(handlers: Mapping[str, object]) -> None:
    """Refuse to start while a kind has no handler: its jobs would wait for ever."""
    missing = sorted(kinds.DECLARED.keys() - handlers.keys())
    if missing:
        raise StartupProblem(f"no handler for jobs of kind {', '.join(missing)}")


def _bound(run: Run, failed: Failed | None, services: JobServices) -> Handler:
    async def run_with_context(work: Work, claim: Claim) -> Outcome:
        operation_id: UUID | None = getattr(work, "operation_id", None)
        if operation_id is not None:  # else the operation that enqueued the job stays bound
            bind_contextvars(operation_id=operation_id)
        try:
            outcome = await run(work, JobContext(services, claim))
        except NotYet as not_yet:
            return Again(after=not_yet.after)
        if isinstance(outcome, Done):
            log.info("job.done")
        return outcome

    return Handler(run=run_with_context, failed=failed)


def growing_pause(elapsed: timedelta, *, longest: timedelta) -> timedelta:
    """A quarter of the elapsed time, at least 250 ms: polls are frequent at first and then slow down."""
    return min(longest, max(timedelta(milliseconds=250), elapsed / 4))
