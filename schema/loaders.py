"""DataLoaders, one per relation and request: the children of a list cost one query."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy import select
from strawberry.dataloader import DataLoader

from server.auth.caller import Caller
from server.auth.projects import get_projects
from server.auth.token_admin import get_tokens
from server.catalog.catalog import Catalog, RegistryAuth
from server.catalog.offers import Offer, offers
from server.catalog.owners import visible
from server.db.database import Database
from server.db.tables import (
    Attempt,
    Delivery,
    DeliveryAttempt,
    Instance,
    InstanceRow,
    Operation,
    ProbeResult,
    Project,
    Token,
)
from server.enums import InstanceKind, ProviderObjectKind
from server.events.event import Cursor, Event
from server.events.replay import cursor_now, get_events
from server.instances.create_line import CreateLine, Place
from server.instances.limits.policy import Policy, read_policies
from server.instances.queries import fast_page
from server.instances.queries import operations as reads
from server.probes.results import results_of
from server.queue.queries import JobView, get_jobs
from server.webhooks.queries import attempts_of, get_deliveries

K = TypeVar("K")
V = TypeVar("V")


def _loader(load: Callable[["Loaders", list[K]], Awaitable[list[V]]]) -> "cached_property[DataLoader[K, V]]":
    """Makes a DataLoader of a batch function; it is created on first use: few requests need more than one."""
    return cached_property(lambda loaders: DataLoader(partial(load, loaders), cache=loaders.keep))


class StoredEnv(NamedTuple):
    """Environment variables as they are stored."""

    env: dict[str, Any]
    secret_env: list[str] | None


class Loaders:
    """`keep` is off for WebSockets: rows read for one message must not be reused for a later one."""

    def __init__(self, database: Database, catalog: Catalog, line: CreateLine, caller: Caller, *, keep: bool) -> None:
        self._database = database
        self._line = line
        self._catalog = catalog
        self._project_id = caller.project_id
        self.keep = keep
        self._newest: dict[int, DataLoader[UUID, list[Operation]]] = {}

    def operations(self, first: int) -> DataLoader[UUID, list[Operation]]:
        """The newest operations of each instance; one loader per requested number."""
        if first not in self._newest:
            self._newest[first] = DataLoader(partial(self._newest_operations, first=first), cache=self.keep)
        return self._newest[first]

    async def _newest_operations(self, instance_ids: list[UUID], *, first: int) -> list[list[Operation]]:
        async with self._database.read() as session:
            by_id = await reads.newest_operations(session, instance_ids, project_id=self._project_id, first=first)
        return [by_id[id] for id in instance_ids]

    @_loader
    async def instance(self, ids: list[UUID]) -> list[InstanceRow | None]:
        by_id = await fast_page.by_ids(self._database, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def operation(self, ids: list[UUID]) -> list[Operation | None]:
        async with self._database.read() as session:
            by_id = await reads.get_operations(session, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def lifetime_policy(self, project_ids: list[UUID]) -> list[Policy]:
        async with self._database.read() as session:
            by_id = await read_policies(session, project_ids)
        return [by_id[id] for id in project_ids]

    @_loader
    async def attempts(self, operation_ids: list[UUID]) -> list[list[Attempt]]:
        async with self._database.read() as session:
            by_id = await reads.attempts_by_operation(session, operation_ids)
        return [by_id[id] for id in operation_ids]

    @_loader
    async def queue_place(self, instance_ids: list[UUID]) -> list[Place | None]:
        by_id = await self._line.places(instance_ids)
        return [by_id.get(id) for id in instance_ids]

    @_loader
    async def open_operation(self, instance_ids: list[UUID]) -> list[Operation | None]:
        async with self._database.read() as session:
            by_id = await reads.open_operations(session, instance_ids, project_id=self._project_id)
        return [by_id.get(id) for id in instance_ids]

    @_loader
    async def env(self, instance_ids: list[UUID]) -> list[StoredEnv]:
        async with self._database.read() as session:
            rows = await session.execute(
                select(Instance.id, Instance.env, Instance.secret_env).where(
                    Instance.id.in_(instance_ids), Instance.project_id == self._project_id
                )
            )
            by_id = {row.id: StoredEnv(row.env, row.secret_env) for row in rows}
        return [by_id.get(id, StoredEnv({}, [])) for id in instance_ids]

    @_loader
    async def health(self, instance_ids: list[UUID]) -> list[list[ProbeResult]]:
        async with self._database.read() as session:
            by_id = await results_of(session, instance_ids)
        return [by_id[id] for id in instance_ids]

    @_loader
    async def webhook(self, instance_ids: list[UUID]) -> list[tuple[str, datetime | None] | None]:
        async with self._database.read() as session:
            rows = await session.execute(
                select(Instance.id, Instance.webhook_url, Instance.webhook_disabled_at).where(
                    Instance.id.in_(instance_ids),
                    Instance.project_id == self._project_id,
                    Instance.webhook_url.is_not(None),
                )
            )
            by_id = {row.id: (str(row.webhook_url), row.webhook_disabled_at) for row in rows}
        return [by_id.get(id) for id in instance_ids]

    @_loader
    async def token(self, ids: list[UUID]) -> list[Token | None]:
        async with self._database.read() as session:
            by_id = await get_tokens(session, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def any_token(self, ids: list[UUID]) -> list[Token | None]:
        """Tokens of all projects, for server administrators."""
        async with self._database.read() as session:
            by_id = await get_tokens(session, ids, project_id=None)
        return [by_id.get(id) for id in ids]

    @_loader
    async def project(self, ids: list[UUID]) -> list[Project | None]:
        """Without a project check: the ids come from rows that the caller may see."""
        async with self._database.read() as session:
            by_id = await get_projects(session, ids)
        return [by_id.get(id) for id in ids]

    @_loader
    async def job(self, ids: list[int]) -> list[JobView | None]:
        async with self._database.read() as session:
            by_id = await get_jobs(session, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def event(self, ids: list[UUID]) -> list[tuple[Event, Cursor] | None]:
        """Events with their cursors."""
        async with self._database.read() as session:
            by_id = await get_events(session, ids, project_id=self._project_id)
            epoch = (await cursor_now(session)).epoch
        found = [by_id.get(id) for id in ids]
        return [None if event is None else (event, Cursor(epoch, event.position)) for event in found]

    @_loader
    async def registry_auth(self, ids: list[str]) -> list[RegistryAuth | None]:
        """By the provider's ids."""
        listed, project_id = await self._catalog.registry_auths(), self._project_id
        shown = await visible(self._database, ProviderObjectKind.REGISTRY_AUTH, listed, project_id=project_id)
        by_id = {auth.id: auth for auth in shown}
        return [by_id.get(id) for id in ids]

    @_loader
    async def offer(self, ids: list[tuple[InstanceKind, str, str]]) -> list[Offer | None]:
        """By kind and the provider's ids of region and product."""
        by_id: dict[tuple[InstanceKind, str, str], Offer] = {}
        for kind in {kind for kind, _, _ in ids}:
            regions = list({cluster_id for of, cluster_id, _ in ids if of is kind})
            for offer in await offers(self._catalog, regions=regions, is_cpu=kind is InstanceKind.CPU):
                by_id[kind, offer.region.id, offer.product.id] = offer
        return [by_id.get(id) for id in ids]

    @_loader
    async def delivery(self, ids: list[UUID]) -> list[Delivery | None]:
        async with self._database.read() as session:
            by_id = await get_deliveries(session, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def delivery_attempts(self, delivery_ids: list[UUID]) -> list[list[DeliveryAttempt]]:
        async with self._database.read() as session:
            by_id = await attempts_of(session, delivery_ids)
        return [by_id[id] for id in delivery_ids]
