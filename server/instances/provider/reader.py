"""The provider's state for readers: one call for all of them, cached, and never required for an answer."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from server.auth.caller import Caller
from server.cache.cache import Cache
from server.cache.dated import Dated
from server.cache.registry import Caches
from server.clock import now
from server.db.database import Database
from server.db.tables import InstanceLike
from server.errors import NovitaError, ProviderNotFound, ProviderTimeout
from server.instances import transitions
from server.instances.provider.absence import note_missing
from server.instances.provider.drift import apply_snapshot
from server.instances.provider.live_reads import LiveReads
from server.instances.provider.poller import InstancePoller
from server.instances.provider.reconcile import Report, sync_project
from server.instances.provider.snapshot import ProviderSnapshot, snapshots
from server.instances.status import FRESH_FOR, MOVING
from server.market.waits import WAITING_FOR_CAPACITY
from server.novita.client import NovitaClient
from server.novita.models import InstanceMetrics, RemoteInstance
from server.novita.transport.concurrency import CallPriority

log = structlog.get_logger(__name__)

# How long a reader waits for the provider before it gets the last known state.
POLL_TIMEOUT = timedelta(seconds=2)
LIST_TIMEOUT = timedelta(seconds=5)
# After a failure, readers get our rows at once for this time, instead of waiting one by one.
FAILURE_PAUSE = timedelta(seconds=5)
LIST_KEY = "all"
METRICS_TTL = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A machine's state at a time; less than a snapshot, and cached for longer."""

    status: str
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class InstanceReading:
    """An instance, and when its state at the provider was last seen."""

    instance: InstanceLike
    seen_at: datetime | None


class ProviderReader:
    """One per process. Caches: `instances` (one snapshot each), `states` (last seen), `fleet` (the whole list),
    `metrics` (of one machine and range)."""

    def __init__(
        self,
        database: Database,
        novita: NovitaClient,
        poller: InstancePoller,
        caches: Caches,
        *,
        instance_ttl: timedelta,
        state_ttl: timedelta,
        fleet_ttl: timedelta,
        gone_grace: timedelta = timedelta(seconds=60),
        live_reads: LiveReads | None = None,
    ) -> None:
        self._database = database
        self._novita = novita
        self._gone_grace = gone_grace
        self._live_reads = live_reads or LiveReads()
        self._poller = poller
        self._snapshots: Cache[ProviderSnapshot] = caches.new(
            "instances", ProviderSnapshot, ttl=instance_ttl, max_size=10_000
        )
        self._last_seen: Cache[LastSeen] = caches.new("states", LastSeen, ttl=state_ttl, max_size=50_000)
        self._list_cache: Cache[Dated[Sequence[ProviderSnapshot]]] = caches.new(
            "fleet", Dated[tuple[ProviderSnapshot, ...]], ttl=fleet_ttl, max_size=1
        )
        self._metrics: Cache[InstanceMetrics] = caches.new("metrics", InstanceMetrics, ttl=METRICS_TTL, max_size=1_000)
        self._paused_until = 0.0
        self._applying: dict[UUID, asyncio.Future[InstanceReading | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, instance: InstanceLike) -> InstanceReading:
        """The instance; polled first if its status is changing and was not seen for a while. Never raises."""
        seen_at = last_seen(instance)
        if not is_stale(instance, seen_at=seen_at) or instance.novita_id is None:
            return InstanceReading(instance, seen_at)
        last = await self._last_seen.peek(instance.novita_id)
        if last is not None and last.status == instance.novita_status:
            seen_at = max(seen_at, last.asked_at)
            if not is_stale(instance, seen_at=seen_at):
                return InstanceReading(instance, seen_at)
        if time.monotonic() < self._paused_until:
            return InstanceReading(instance, seen_at)
        novita_id = instance.novita_id
        try:
            snapshot = await self._snapshots.get(novita_id, lambda: self._poll(novita_id))
        except ProviderNotFound:
            snapshot = None
        except NovitaError as error:
            self._paused_until = time.monotonic() + FAILURE_PAUSE.total_seconds()
            log.info("read.stale", instance_id=instance.id, code=error.code)
            return InstanceReading(instance, seen_at)
        return await self._apply_once(instance, snapshot) or InstanceReading(instance, seen_at)

    async def _apply_once(self, instance: InstanceLike, snapshot: ProviderSnapshot | None) -> InstanceReading | None:
        applying = self._applying.get(instance.id)
        if applying is None:  # else another reader writes the same
            applying = self._applying[instance.id] = asyncio.ensure_future(self._apply(instance, snapshot))
            applying.add_done_callback(lambda _: self._applying.pop(instance.id, None))
        return await asyncio.shield(applying)

    async def _apply(self, instance: InstanceLike, snapshot: ProviderSnapshot | None) -> InstanceReading | None:
        """None if the row is being changed, for which a read does not wait, or if the machine was not found."""
        async with self._database.write() as session:
            if await transitions.try_lock(session, instance.id) is None:
                return None
            machine = str(instance.novita_id)
            if snapshot is None:
                await note_missing(session, instance.id, machine)  # a later look decides
                return None
            asked_at, cause = snapshot.asked_at, transitions.Cause()
            await apply_snapshot(session, instance.id, snapshot, machine=machine, asked_at=asked_at, cause=cause)
            updated = await transitions.lock(session, instance.id)
        return InstanceReading(updated, max(last_seen(updated), snapshot.asked_at))

    async def machines(self) -> Dated[Sequence[ProviderSnapshot]]:
        """All machines at the provider, and when it was asked. Raises NovitaError.

        After a timeout the list is read to its end in the background, for the next callers.
        """
        try:
            async with asyncio.timeout(LIST_TIMEOUT.total_seconds()):
                return await self._list_cache.get(LIST_KEY, self._list)
        except TimeoutError:
            raise ProviderTimeout("the provider's list takes too long") from None

    async def fetch(self, novita_id: str, *, by: Caller) -> RemoteInstance:
        """The machine as the provider describes it now, without any cache. Raises NovitaError, TooManyLiveReads."""
        self._live_reads.take(by)
        return await self._novita.instance(novita_id)

    async def metrics(
        self, novita_id: str, *, since: datetime, until: datetime, interval: timedelta, by: Caller
    ) -> InstanceMetrics:
        """The machine's utilisation as the provider reports it now. Raises NovitaError, TooManyLiveReads."""

        async def fetch() -> InstanceMetrics:
            self._live_reads.take(by)
            return await self._novita.metrics(
                novita_id, since=since, until=until, interval=interval, priority=CallPriority.USER
            )

        key = f"{novita_id} {since.timestamp():.0f} {until.timestamp():.0f} {interval.total_seconds():.0f}"
        return await self._metrics.get(key, fetch)

    async def sync(self, *, by: Caller) -> Report:
        """Compare the project's rows with the provider now. Raises NovitaError, TooManyLiveReads."""
        self._live_reads.take(by)
        await self._list_cache.drop(LIST_KEY)
        cause = transitions.Cause(token_id=by.token_id)
        return await sync_project(
            self._database, self._novita, project_id=by.project_id, cause=cause, gone_grace=self._gone_grace
        )

    def forget(self, novita_ids: set[str]) -> None:
        """Drop cached state of machines whose rows were written."""
        task = asyncio.get_running_loop().create_task(self._forget(novita_ids))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forget(self, novita_ids: set[str]) -> None:
        for novita_id in novita_ids:
            await self._snapshots.drop(novita_id)
            await self._last_seen.drop(novita_id)

    async def _poll(self, novita_id: str) -> ProviderSnapshot:
        asked_at = now()
        try:
            async with asyncio.timeout(POLL_TIMEOUT.total_seconds()):
                snapshot = ProviderSnapshot.of(await self._poller.poll_now(novita_id), asked_at=asked_at)
        except TimeoutError:
            raise ProviderTimeout("the provider takes too long for a read") from None
        await self._last_seen.put(novita_id, LastSeen(snapshot.status, asked_at))
        return snapshot

    async def _list(self) -> Dated[Sequence[ProviderSnapshot]]:
        asked_at = now()
        machines = snapshots(await self._novita.all_instances(priority=CallPriority.USER), asked_at=asked_at)
        for snapshot in machines:
            await self._last_seen.put(snapshot.id, LastSeen(snapshot.status, asked_at))
        return Dated(machines, asked_at)


# What `ProviderReader.read` reads of a row.
READER_COLUMNS = frozenset(
    {"id", "status", "status_reason", "status_since", "observed_at", "novita_id", "novita_status"}
)


def last_seen(instance: InstanceLike) -> datetime:
    """When the row was last known to agree with the provider."""
    return max(instance.observed_at or instance.status_since, instance.status_since)


def unseen_for(
    instance: InstanceLike, *, seen_at: datetime | None = None, at: datetime | None = None
) -> timedelta | None:
    """The time since an instance with a changing status was last seen; None if its status is not changing."""
    if instance.novita_id is None or instance.status not in MOVING or instance.status_reason == WAITING_FOR_CAPACITY:
        return None
    return max((at or now()) - max(seen_at or last_seen(instance), last_seen(instance)), timedelta(0))


def is_stale(instance: InstanceLike, *, seen_at: datetime) -> bool:
    unseen = unseen_for(instance, seen_at=seen_at)
    return unseen is not None and unseen > FRESH_FOR
