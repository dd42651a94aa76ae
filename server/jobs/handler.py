"""How a kind of work finds its handler, and what a handler has at hand."""

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession
from structlog.contextvars import bind_contextvars

import server.jobs
from server.catalog.catalog import Catalog
from server.config import Settings
from server.db.engine import Database
from server.errors import IllegalMove
from server.instances import moves, operations
from server.instances.checks import Checks
from server.instances.lookout import Lookout, Postponed
from server.instances.standing import Standings
from server.novita.client import NovitaClient
from server.novita.wire import RemoteInstance
from server.probes.probe import Prober
from server.queue.claim import Claim
from server.queue.handler import Handler
from server.queue.kinds import Work
from server.queue.outcome import Again, Done, Failure, Outcome
from server.webhooks.send import Sender
from server.words import InstanceStatus

log = structlog.get_logger(__name__)

W = TypeVar("W", bound=Work)


@dataclass(frozen=True, slots=True)
class Services:
    """What every handler of a process shares."""

    database: Database
    novita: NovitaClient
    catalog: Catalog
    prober: Prober
    sender: Sender
    settings: Settings
    lookout: Lookout
    standings: Standings = field(init=False)
    checks: Checks = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "standings", Standings(self.database))
        object.__setattr__(self, "checks", Checks(self.database))


@dataclass(frozen=True, slots=True)
class Tools:
    """What one run of a handler has: the services, and its own claim on the job."""

    services: Services
    claim: Claim

    @property
    def novita(self) -> NovitaClient:
        return self.services.novita

    @property
    def catalog(self) -> Catalog:
        return self.services.catalog

    @property
    def settings(self) -> Settings:
        return self.services.settings

    async def look(self, novita_id: str) -> RemoteInstance:
        """What the provider says of a machine, shared with whoever else looks now. Raises NovitaError; and Postponed,
        which ends this run and begins another when the answer is there, so nothing may be done before looking."""
        return await self.services.lookout.look(novita_id, asker=self.claim.job_id)

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        async with self.services.database.read() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """A transaction that only commits while the job is still ours."""
        async with self.claim.write() as session:
            yield session


Run = Callable[[Any, Tools], Awaitable[Outcome]]
Failed = Callable[[AsyncSession, Any, Failure], Awaitable[None]]

_registered: dict[type[Work], tuple[Run, Failed | None]] = {}


def handles(
    kind: type[W], *, failed: Failed | None = None
) -> Callable[[Callable[[W, Tools], Awaitable[Outcome]]], Callable[[W, Tools], Awaitable[Outcome]]]:
    """Register the handler of a kind; `failed` runs in the transaction in which the job is given up."""

    def register(run: Callable[[W, Tools], Awaitable[Outcome]]) -> Callable[[W, Tools], Awaitable[Outcome]]:
        if kind in _registered:
            raise TypeError(f"{kind.__name__} has two handlers")
        _registered[kind] = (run, failed)
        return run

    return register


def all_handlers(services: Services) -> dict[str, Handler]:
    """Every module of this package is imported, so a new kind is one new file."""
    for module in pkgutil.iter_modules(server.jobs.__path__):
        importlib.import_module(f"{server.jobs.__name__}.{module.name}")
    return {kind.kind: _bound(run, failed, services) for kind, (run, failed) in _registered.items()}


def _bound(run: Run, failed: Failed | None, services: Services) -> Handler:
    async def run_with_tools(work: Work, claim: Claim) -> Outcome:
        operation_id: UUID | None = getattr(work, "operation_id", None)
        if operation_id is not None:  # else the one that the job came from stands
            bind_contextvars(operation_id=operation_id)
        try:
            outcome = await run(work, Tools(services, claim))
        except Postponed as postponed:
            return Again(after=postponed.after)
        if isinstance(outcome, Done):
            log.info("job.done")
        return outcome

    return Handler(run=run_with_tools, failed=failed)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something came to a bad end, for people and programs."""

    code: str
    message: str
    retryable: bool


async def fail_operation(session: AsyncSession, instance_id: UUID, operation_id: UUID, reason: Reason) -> None:
    """End the operation and its instance badly, together. Whoever finds the operation over changes nothing."""
    operation = await operations.fail(
        session, operation_id, code=reason.code, message=reason.message, retryable=reason.retryable
    )
    if operation is None:
        return
    cause = moves.Cause(operation_id, operation.requested_by)
    try:
        await moves.move(
            session,
            instance_id,
            InstanceStatus.FAILED,
            cause=cause,
            failure_code=reason.code,
            failure_message=reason.message,
        )
    except IllegalMove:
        return  # it failed or went away before


async def fail_with_the_job(session: AsyncSession, work: Any, failure: Failure) -> None:
    """What most kinds want: the job is given up, so its operation has failed."""
    await fail_operation(
        session, work.instance_id, work.operation_id, Reason(failure.code, failure.message, failure.retryable)
    )


def growing_pause(elapsed: timedelta, *, longest: timedelta) -> timedelta:
    """Quick at first, slower the longer it takes: a quarter of the time spent so far."""
    return min(longest, max(timedelta(milliseconds=250), elapsed / 4))
