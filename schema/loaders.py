"""DataLoaders, one per relation and request: the children of a list cost one query."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import orjson
from strawberry.dataloader import DataLoader

from server.auth.caller import Caller
from server.auth.projects import get_projects
from server.auth.token_admin import get_tokens
from server.catalog.catalog import Catalog, RegistryAuth
from server.catalog.offers import Offer, offers
from server.catalog.owners import visible
from server.db.database import Database, fetch_in
from server.db.tables import (
    AttemptRow,
    BudgetRow,
    DeliveryAttemptRow,
    DeliveryRow,
    InstanceRow,
    MachineRow,
    MarketAlertRow,
    OperationRow,
    ProbeRow,
    ProjectRow,
    ProjectWebhookRow,
    QuotaRow,
    TokenRow,
    VolumeRow,
)
from server.db.tables.rows import make_rows, select_rows
from server.enums import InstanceKind, ProviderObjectKind
from server.events.event import Cursor, Event, is_hidden
from server.events.replay import cursor_now, cursors_before, get_events
from server.instances import machines
from server.instances.create_line import CreateLine, Place
from server.instances.limits.policy import Policy, read_policies
from server.instances.queries import fast_page
from server.instances.queries import operations as reads
from server.market.alerts import get_alerts
from server.market.history import Availability, read_availability
from server.market.tape import OfferKey
from server.market.waiting_view import CapacityWaitView, read_waits
from server.probes.results import read_results
from server.queue.queries import JobView, get_jobs
from server.spend.budgets import get_budgets
from server.spend.quotas import QuotaUsage, get_quotas, read_quota_usage
from server.spend.report import InstanceSpend, Summary, read_instances, read_summaries
from server.spend.token_allowance import read_allowances
from server.spend.usage import Usage, read_usage
from server.webhooks.project_webhooks import get_webhooks
from server.webhooks.queries import attempts_of, get_deliveries

OF_PROJECT = "FROM instance WHERE id = ANY($1::uuid[]) AND project_id = $2"
READ_ENV = f"SELECT id, env, secret_env {OF_PROJECT}"
READ_WEBHOOKS = f"SELECT id, webhook_url, webhook_disabled_at {OF_PROJECT} AND webhook_url IS NOT NULL"

READ_VOLUMES = f"{select_rows(VolumeRow)} WHERE id = ANY($1::uuid[]) AND project_id = $2 AND status <> 'DELETED'"
READ_HOLDERS = """
    SELECT volume_id, instance_id FROM volume_attachment JOIN instance ON instance.id = instance_id
    WHERE volume_id = ANY($1::uuid[]) AND instance.status <> 'DELETED' ORDER BY instance.name
"""

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
        self._caller = caller
        self.keep = keep
        self._newest: dict[int, DataLoader[UUID, list[OperationRow]]] = {}
        self._parts: dict[frozenset[str], DataLoader[UUID, InstanceRow | None]] = {}

    def operations(self, first: int) -> DataLoader[UUID, list[OperationRow]]:
        """The newest operations of each instance; one loader per requested number."""
        if first not in self._newest:
            self._newest[first] = DataLoader(partial(self._newest_operations, first=first), cache=self.keep)
        return self._newest[first]

    async def _newest_operations(self, instance_ids: list[UUID], *, first: int) -> list[list[OperationRow]]:
        by_id = await reads.newest_operations(self._database, instance_ids, project_id=self._project_id, first=first)
        return [by_id[id] for id in instance_ids]

    def part_of_instance(self, columns: frozenset[str]) -> DataLoader[UUID, InstanceRow | None]:
        """Instances with only these columns, for a field that shows no others."""
        if columns not in self._parts:
            self._parts[columns] = DataLoader(partial(self._instances, columns=columns), cache=self.keep)
        return self._parts[columns]

    @_loader
    async def instance(self, ids: list[UUID]) -> list[InstanceRow | None]:
        return await self._instances(ids, columns=fast_page.ALL_COLUMNS)

    async def _instances(self, ids: list[UUID], *, columns: Collection[str]) -> list[InstanceRow | None]:
        by_id = await fast_page.by_ids(self._database, ids, by=self._caller, columns=columns)
        return [by_id.get(id) for id in ids]

    @_loader
    async def operation(self, ids: list[UUID]) -> list[OperationRow | None]:
        by_id = await reads.get_operations(self._database, ids, by=self._caller)
        return [by_id.get(id) for id in ids]

    @_loader
    async def lifetime_policy(self, project_ids: list[UUID]) -> list[Policy]:
        async with self._database.read() as session:
            by_id = await read_policies(session, project_ids)
        return [by_id[id] for id in project_ids]

    @_loader
    async def machines(self, instance_ids: list[UUID]) -> list[list[MachineRow]]:
        by_id = await machines.of_instances(self._database.raw, instance_ids)
        return [by_id[id] for id in instance_ids]

    @_loader
    async def availability(self, offers: list[tuple[OfferKey, str]]) -> list[Availability]:
        """Of each offer, in the last 30 days; the key has the name of its product with it."""
        async with self._database.read() as session:
            by_key = await read_availability(session, dict(offers))
        return [by_key[key] for key, _ in offers]

    @_loader
    async def spend(self, instance_ids: list[UUID]) -> list[InstanceSpend]:
        async with self._database.read() as session:
            by_id = await read_instances(session, instance_ids)
        return [by_id.get(id, InstanceSpend(0, 0, 0)) for id in instance_ids]

    @_loader
    async def budget(self, ids: list[UUID]) -> list[BudgetRow | None]:
        by_id = await get_budgets(self._database.raw, ids, by=self._caller)
        return [by_id.get(id) for id in ids]

    @_loader
    async def alert(self, ids: list[UUID]) -> list[MarketAlertRow | None]:
        by_id = await get_alerts(self._database.raw, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def budget_usage(self, ids: list[UUID]) -> list[Usage]:
        """Of a budget that was deleted meanwhile: nothing."""
        budgets = await get_budgets(self._database.raw, ids, by=self._caller)
        async with self._database.read() as session:
            by_id = await read_usage(fetch_in(session), list(budgets.values()))
        return [by_id.get(id) or Usage.none() for id in ids]

    @_loader
    async def quota(self, ids: list[UUID]) -> list[QuotaRow | None]:
        by_id = await get_quotas(self._database.raw, ids, by=self._caller)
        return [by_id.get(id) for id in ids]

    @_loader
    async def quota_usage(self, ids: list[UUID]) -> list[QuotaUsage]:
        """Of a quota that was removed meanwhile: nothing."""
        quotas = await get_quotas(self._database.raw, ids, by=self._caller)
        async with self._database.read() as session:
            by_id = await read_quota_usage(fetch_in(session), list(quotas.values()))
        return [by_id.get(id) or QuotaUsage() for id in ids]

    @_loader
    async def token_allowance(self, token_ids: list[UUID]) -> list[tuple[BudgetRow | None, QuotaRow | None]]:
        by_id = await read_allowances(self._database.raw, token_ids)
        return [by_id.get(id, (None, None)) for id in token_ids]

    @_loader
    async def spend_summary(self, project_ids: list[UUID]) -> list[tuple[Summary, Cursor]]:
        async with self._database.read() as session:
            by_id, cursor = (
                await read_summaries(session, project_ids, token_id=self._caller.owner_id),
                await cursor_now(session),
            )
        return [(by_id[id], cursor) for id in project_ids]

    @_loader
    async def attempts(self, operation_ids: list[UUID]) -> list[list[AttemptRow]]:
        by_id = await reads.attempts_by_operation(self._database, operation_ids)
        return [by_id[id] for id in operation_ids]

    @_loader
    async def queue_place(self, instance_ids: list[UUID]) -> list[Place | None]:
        by_id = await self._line.places(instance_ids)
        return [by_id.get(id) for id in instance_ids]

    @_loader
    async def capacity_wait(self, operation_ids: list[UUID]) -> list[CapacityWaitView | None]:
        by_id = await read_waits(self._database.raw, operation_ids, project_id=self._project_id)
        return [by_id.get(id) for id in operation_ids]

    @_loader
    async def open_operation(self, instance_ids: list[UUID]) -> list[OperationRow | None]:
        by_id = await reads.open_operations(self._database, instance_ids, project_id=self._project_id)
        return [by_id.get(id) for id in instance_ids]

    @_loader
    async def env(self, instance_ids: list[UUID]) -> list[StoredEnv]:
        by_id = {
            row["id"]: StoredEnv(orjson.loads(row["env"]), orjson.loads(row["secret_env"] or "null"))
            for row in await self._database.raw.fetch_by_keys(READ_ENV, instance_ids, self._project_id)
        }
        return [by_id.get(id, StoredEnv({}, [])) for id in instance_ids]

    @_loader
    async def health(self, instance_ids: list[UUID]) -> list[list[ProbeRow]]:
        by_id = await read_results(self._database, instance_ids)
        return [by_id[id] for id in instance_ids]

    @_loader
    async def webhook(self, instance_ids: list[UUID]) -> list[tuple[str, datetime | None] | None]:
        by_id = {
            row["id"]: (row["webhook_url"], row["webhook_disabled_at"])
            for row in await self._database.raw.fetch_by_keys(READ_WEBHOOKS, instance_ids, self._project_id)
        }
        return [by_id.get(id) for id in instance_ids]

    @_loader
    async def volume(self, ids: list[UUID]) -> list[VolumeRow | None]:
        records = await self._database.raw.fetch_by_keys(READ_VOLUMES, ids, self._project_id)
        by_id = {row.id: row for row in make_rows(VolumeRow, records)}
        return [by_id.get(id) for id in ids]

    @_loader
    async def volume_holders(self, volume_ids: list[UUID]) -> list[list[InstanceRow]]:
        """The living instances that have each volume, of those that the caller sees."""
        pairs = await self._database.raw.fetch_by_keys(READ_HOLDERS, volume_ids)
        by_id: Mapping[UUID, InstanceRow] = {}
        if pairs:
            ids = list({each["instance_id"] for each in pairs})
            by_id = await fast_page.by_ids(self._database, ids, by=self._caller)
        holders: dict[UUID, list[InstanceRow]] = {id: [] for id in volume_ids}
        for volume_id, instance_id in pairs:
            if instance_id in by_id:
                holders[volume_id].append(by_id[instance_id])
        return [holders[id] for id in volume_ids]

    @_loader
    async def token(self, ids: list[UUID]) -> list[TokenRow | None]:
        by_id = await get_tokens(self._database, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def any_token(self, ids: list[UUID]) -> list[TokenRow | None]:
        """Tokens of all projects, for server administrators."""
        by_id = await get_tokens(self._database, ids, project_id=None)
        return [by_id.get(id) for id in ids]

    @_loader
    async def project(self, ids: list[UUID]) -> list[ProjectRow | None]:
        """Without a project check: the ids come from rows that the caller may see."""
        by_id = await get_projects(self._database, ids)
        return [by_id.get(id) for id in ids]

    @_loader
    async def job(self, ids: list[int]) -> list[JobView | None]:
        async with self._database.read() as session:
            by_id = await get_jobs(session, ids, project_id=self._project_id, owner_id=self._caller.owner_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def event(self, ids: list[UUID]) -> list[tuple[Event, Cursor] | None]:
        """Events with their cursors."""
        async with self._database.read() as session:
            by_id = await get_events(session, ids, project_id=self._project_id)
            epoch = (await cursor_now(session)).epoch
        seen = {id: event for id, event in by_id.items() if not is_hidden(event, self._caller.owner_id)}
        return [None if id not in seen else (seen[id], Cursor(epoch, seen[id].position)) for id in ids]

    @_loader
    async def operation_cursor(self, operations: list[tuple[UUID, UUID]]) -> list[Cursor | None]:
        """By ids of operation and instance."""
        by_id = await cursors_before(self._database, operations)
        return [by_id.get(id) for id, _ in operations]

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
    async def delivery(self, ids: list[UUID]) -> list[DeliveryRow | None]:
        by_id = await get_deliveries(self._database, ids, by=self._caller)
        return [by_id.get(id) for id in ids]

    @_loader
    async def project_webhook(self, ids: list[UUID]) -> list[ProjectWebhookRow | None]:
        by_id = await get_webhooks(self._database, ids, project_id=self._project_id)
        return [by_id.get(id) for id in ids]

    @_loader
    async def delivery_attempts(self, delivery_ids: list[UUID]) -> list[list[DeliveryAttemptRow]]:
        by_id = await attempts_of(self._database, delivery_ids)
        return [by_id[id] for id in delivery_ids]
