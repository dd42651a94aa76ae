"""What the provider shows, for people who read: asked once for all of them, remembered for a while, never required."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from server.auth.caller import Caller
from server.catalog.cache import Cache
from server.catalog.caches import Caches
from server.clock import now
from server.db.engine import Database
from server.db.tables import Instance
from server.errors import NovitaError, ProviderNotFound, ProviderTimeout
from server.instances import moves
from server.instances.adopt import AdoptDraft, adopt_instance
from server.instances.glimpse import Glimpse, glimpses
from server.instances.lookout import Lookout
from server.instances.moving import FRESH_FOR, MOVING
from server.instances.outside import compare
from server.instances.reconcile import Report, sync_project
from server.instances.ssh import SshAccess, ssh_access
from server.novita.client import NovitaClient
from server.novita.priority import Priority

log = structlog.get_logger(__name__)

# How long a reader waits for the provider before the last known state has to do.
PATIENCE = timedelta(seconds=2)
LIST_PATIENCE = timedelta(seconds=5)
# After a failure readers are answered from our rows at once for so long, instead of waiting one by one.
PAUSE = timedelta(seconds=5)
ALL = "all"


@dataclass(frozen=True, slots=True)
class Sighting:
    """That a machine was seen in some state; less than a glimpse, and remembered for longer."""

    status: str
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class Reading:
    """An instance, and when the provider was last heard of it."""

    instance: Instance
    seen_at: datetime | None


class Watch:
    """One per process. Caches: `instances` (one look each), `states` (last sightings), `fleet` (the whole list)."""

    def __init__(
        self,
        database: Database,
        novita: NovitaClient,
        lookout: Lookout,
        caches: Caches,
        *,
        instance_ttl: timedelta,
        state_ttl: timedelta,
        fleet_ttl: timedelta,
    ) -> None:
        self._database = database
        self._novita = novita
        self._lookout = lookout
        self._looks: Cache[Glimpse] = caches.new("instances", Glimpse, ttl=instance_ttl, max_size=10_000)
        self._states: Cache[Sighting] = caches.new("states", Sighting, ttl=state_ttl, max_size=50_000)
        self._lists: Cache[Sequence[Glimpse]] = caches.new("fleet", Sequence[Glimpse], ttl=fleet_ttl, max_size=1)
        self._quiet_until = 0.0
        self._dropping: set[asyncio.Task[None]] = set()

    async def read(self, instance: Instance) -> Reading:
        """The instance, brought up to date if it is moving and nobody looked for a while; never an error."""
        seen_at = last_seen(instance)
        if not is_stale(instance, seen_at=seen_at) or instance.novita_id is None:
            return Reading(instance, seen_at)
        sighting = await self._states.peek(instance.novita_id)
        if sighting is not None and sighting.status == instance.novita_status:
            seen_at = max(seen_at, sighting.asked_at)
            if not is_stale(instance, seen_at=seen_at):
                return Reading(instance, seen_at)
        if time.monotonic() < self._quiet_until:
            return Reading(instance, seen_at)
        novita_id = instance.novita_id
        asked_at = now()
        try:
            glimpse = await self._looks.get(novita_id, lambda: self._look(novita_id))
        except ProviderNotFound:
            glimpse = None
        except NovitaError as error:
            self._quiet_until = time.monotonic() + PAUSE.total_seconds()
            log.info("read.stale", instance_id=instance.id, code=error.code)
            return Reading(instance, seen_at)
        moment = asked_at if glimpse is None else glimpse.asked_at
        async with self._database.write() as session:
            await compare(session, instance.id, glimpse, asked_at=moment, cause=moves.Cause())
            found = await moves.locked(session, instance.id)
        return Reading(found, max(last_seen(found), moment))

    async def machines(self) -> Sequence[Glimpse]:
        """Everything the provider has, all pages of it. Raises NovitaError.

        A list that takes too long goes on being read for those who ask next.
        """
        try:
            async with asyncio.timeout(LIST_PATIENCE.total_seconds()):
                return await self._lists.get(ALL, self._list)
        except TimeoutError:
            raise ProviderTimeout("the provider's list takes too long") from None

    async def ssh_access(self, instance: Instance) -> SshAccess | None:
        """How to log in, past all caches: a password is kept nowhere. Raises NovitaError."""
        return await ssh_access(self._novita, instance)

    async def sync(self, *, by: Caller) -> Report:
        """Bring the caller's rows to what the provider says now. Raises NovitaError."""
        await self._lists.drop(ALL)
        cause = moves.Cause(token_id=by.token_id)
        return await sync_project(self._database, self._novita, project_id=by.project_id, cause=cause)

    async def adopt(self, database: Database, draft: AdoptDraft, *, by: Caller) -> Instance:
        """Take over a machine that is nobody's. The database is the caller's: it may be a rehearsal."""
        return await adopt_instance(database, self._novita, draft, by=by)

    def forget(self, novita_ids: set[str]) -> None:
        """Their rows were written: what is remembered of them is out of date."""
        task = asyncio.get_running_loop().create_task(self._forget(novita_ids))
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def _forget(self, novita_ids: set[str]) -> None:
        for novita_id in novita_ids:
            await self._looks.drop(novita_id)
            await self._states.drop(novita_id)

    async def _look(self, novita_id: str) -> Glimpse:
        asked_at = now()
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                glimpse = Glimpse.of(await self._lookout.see(novita_id), asked_at=asked_at)
        except TimeoutError:
            raise ProviderTimeout("the provider takes too long for a read") from None
        await self._states.put(novita_id, Sighting(glimpse.status, asked_at))
        return glimpse

    async def _list(self) -> Sequence[Glimpse]:
        asked_at = now()
        found = glimpses(await self._novita.all_instances(priority=Priority.USER), asked_at=asked_at)
        for glimpse in found:
            await self._states.put(glimpse.id, Sighting(glimpse.status, asked_at))
        return found


def last_seen(instance: Instance) -> datetime:
    """When the row was last known to be true."""
    return max(instance.observed_at or instance.status_since, instance.status_since)


def unseen_for(instance: Instance, *, seen_at: datetime | None = None, at: datetime | None = None) -> timedelta | None:
    """How long nobody has seen it, for one that may have moved on meanwhile; None for one at rest."""
    if instance.novita_id is None or instance.status not in MOVING:
        return None
    return max((at or now()) - max(seen_at or last_seen(instance), last_seen(instance)), timedelta(0))


def is_stale(instance: Instance, *, seen_at: datetime) -> bool:
    unseen = unseen_for(instance, seen_at=seen_at)
    return unseen is not None and unseen > FRESH_FOR
