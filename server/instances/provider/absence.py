"""Decides when a machine that the provider does not show is gone: one empty answer proves nothing.

A machine is gone when two looks that are at least GONE_GRACE apart did not find it, the second one by its id and in the
list. If many machines are missing at once, the provider's answer is wrong more likely than the machines are gone.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import ColumnElement, and_, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.database import Database
from server.db.tables import Instance
from server.enums import InstanceStatus
from server.errors import NovitaError, ProviderError
from server.instances import transitions
from server.novita.client import NovitaClient
from server.novita.transport.concurrency import CallPriority
from server.observe import metrics

log = structlog.get_logger(__name__)

GONE_AT_PROVIDER = "GONE_AT_PROVIDER"
# More than this share of all machines, and at least this many of them, do not vanish at once.
MASS_SHARE = 0.2
MASS_MIN = 3
# A requested delete believes even a mass disappearance that has lasted this many times GONE_GRACE: machines that were
# all removed in the provider's console could otherwise never be deleted here.
MASS_FACTOR = 10
# How long one reading of the list serves the jobs that need it.
LIST_TTL = timedelta(seconds=15)


class MassDisappearance(ProviderError):
    """The provider shows so few of our machines that its answer is not believed; nothing was changed."""

    code = "MASS_DISAPPEARANCE"


@dataclass(frozen=True, slots=True)
class Listing:
    """The ids on the provider's list, and whether too many of ours are missing from it."""

    ids: frozenset[str]
    is_mass_disappearance: bool
    asked_at: datetime


def is_mass(missing: int, known: int) -> bool:
    return missing >= MASS_MIN and missing > MASS_SHARE * known


def report_mass(missing: int, known: int) -> None:
    log.error("provider.mass_disappearance", missing=missing, known=known)
    metrics.MASS_DISAPPEARANCES.add()


def is_known_gone() -> ColumnElement[bool]:
    """The rows whose machines were confirmed to be gone, also while a start makes another one, or waits for it."""
    is_replaced = and_(Instance.status == InstanceStatus.STARTING, Instance.novita_status == "removed")
    return or_(and_(Instance.status == InstanceStatus.FAILED, Instance.failure_code == GONE_AT_PROVIDER), is_replaced)


async def note_missing(session: AsyncSession, instance_id: UUID, machine: str) -> timedelta:
    """Record a look that did not find the machine. Returns how long it has been missing; any later look that finds
    it ends that (see `observed_fields`). Nothing if the instance has another machine by now."""
    instance = await transitions.lock(session, instance_id)
    if instance.novita_id != machine:
        return timedelta(0)
    if instance.missing_since is not None:
        return now() - instance.missing_since
    await transitions.update(session, instance_id, cause=transitions.Cause(), missing_since=now())
    return timedelta(0)


class Absences:
    """Confirms absences for the jobs of a process. They share readings of the provider's list."""

    def __init__(self, database: Database, novita: NovitaClient, *, grace: timedelta) -> None:
        self._database = database
        self._novita = novita
        self._grace = grace
        self._reading = asyncio.Lock()
        self._listing: Listing | None = None

    async def confirm(self, instance_id: UUID, novita_id: str, *, is_deleting: bool = False) -> bool:
        """Record that a machine was not found by its id; true once it is certainly gone, else look again later."""
        async with self._database.write() as session:
            missing_for = await note_missing(session, instance_id, novita_id)
        if missing_for < self._grace:
            return False
        try:
            listing = await self._list()
        except NovitaError:
            return False
        if novita_id in listing.ids:
            async with self._database.write() as session:
                await transitions.update(session, instance_id, cause=transitions.Cause(), missing_since=None)
            return False
        return not listing.is_mass_disappearance or (is_deleting and missing_for >= self._grace * MASS_FACTOR)

    async def is_listed(self, novita_id: str) -> bool:
        """Whether the provider's list has a machine. Raises NovitaError."""
        return novita_id in (await self._list()).ids

    async def _list(self) -> Listing:
        asked_at = now()
        async with self._reading:
            if self._listing is None or self._listing.asked_at < asked_at - LIST_TTL:
                self._listing = await self._read()
            return self._listing

    async def _read(self) -> Listing:
        asked_at = now()
        machines = await self._novita.all_instances(priority=CallPriority.POLL)
        ids = frozenset(machine.id for machine in machines)
        not_expected = (InstanceStatus.DELETED, InstanceStatus.DELETING)
        async with self._database.read() as session:
            rows = await session.execute(
                select(Instance.novita_id).where(
                    Instance.novita_id.is_not(None), Instance.status.not_in(not_expected), not_(is_known_gone())
                )
            )
            known = set(rows.scalars())
        missing = len(known - ids)
        if is_mass(missing, len(known)):
            report_mass(missing, len(known))
        return Listing(ids, is_mass(missing, len(known)), asked_at)
