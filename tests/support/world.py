"""A test environment: the real database, a local provider over HTTP, the real handlers, and helpers to inspect them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from pydantic import SecretStr

from server.auth.caller import Caller
from server.auth.tokens import create_token, new_secret
from server.cache.registry import Caches
from server.catalog.catalog import Catalog
from server.clock import new_id, now
from server.config import Settings
from server.db.database import Database
from server.db.notify import Notifier
from server.db.tables import Instance, Project, Token
from server.encryption import Cipher
from server.enums import InstanceStatus, Role
from server.instances.commands.create import Accepted, Defaults, create_instance
from server.instances.commands.create_rows import CreateBatcher
from server.instances.commands.delete import delete_instance
from server.instances.commands.lifecycle import Target
from server.instances.drafts import CreateDraft
from server.instances.provider.poller import InstancePoller
from server.instances.provider.reader import ProviderReader
from server.jobs.registry import JobServices, all_handlers
from server.novita.client import NovitaClient
from server.novita.transport.retry import RetryPolicy
from server.probes.probe import Prober
from server.queue.enqueue import enqueue
from server.queue.kinds import Work
from server.queue.runner import Backoff
from server.queue.worker import Worker
from server.simulator.faults import Fault, FaultKind
from server.simulator.models import Instance as Machine
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from server.ssrf import PrivateAddresses
from server.webhooks.sender import Sender
from server.webhooks.signing import find_key
from tests.support.waiting import until

WITHIN = 30.0  # seconds; never waited for, except on a machine that is busy with other things
RTX = "RTX 4090 24GB"
SINGAPORE, HONG_KONG, MUMBAI = "AS-SGP-02", "CN-HK-01", "AS-IN-01"
CREATE = "POST /gpu/instance/create"
GET = "GET /gpu/instance"
LIST = "GET /gpu/instances"

# From both tables: a sequencer, if one runs, moves rows from `outbox` to `event`.
EVENTS = """
    SELECT type, operation_id, caused_by, data
    FROM (
        SELECT 0 AS place, position AS number, instance_id, type, operation_id, caused_by, data FROM event
        UNION ALL
        SELECT 1, seq, instance_id, type, operation_id, caused_by, data FROM outbox
    ) AS recorded
    WHERE instance_id = $1
    ORDER BY place, number
"""

# Short enough to wait for, with the proportions of the real ones.
QUICK: dict[str, Any] = {
    "request_timeout": timedelta(seconds=5),
    "gone_grace": timedelta(milliseconds=50),
    "health_check_delay": timedelta(milliseconds=20),
    "health_check_timeout": timedelta(seconds=2),
    "novita_rate_limit": 0,
    "default_regions": (SINGAPORE, HONG_KONG, MUMBAI),
    "webhook_signing_key": SecretStr("a key that only tests sign with"),
    "allow_private_webhooks": PrivateAddresses.LOOPBACK,
}


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as its transaction wrote it."""

    type: str
    operation_id: UUID | None
    caused_by: UUID | None
    data: dict[str, Any]


@dataclass
class World:
    """One project with one operator, unless a test makes more."""

    database: Database
    notifier: Notifier
    simulator: Simulator
    caller: Caller = field(init=False)
    settings: Settings = field(init=False)
    novita: NovitaClient = field(init=False)
    catalog: Catalog = field(init=False)
    prober: Prober = field(init=False)
    sender: Sender = field(init=False)
    worker: Worker = field(init=False)

    async def open(self) -> None:
        self.caller = await self.new_caller()
        await self._build({})

    async def close(self) -> None:
        await self.novita.close()
        await self.prober.close()
        await self.sender.close()

    async def configure(self, **overrides: Any) -> None:
        """The same world with other settings; caches are cold again."""
        await self.close()
        await self._build(overrides)

    async def _build(self, overrides: dict[str, Any]) -> None:
        self.settings = Settings(**{**QUICK, **overrides})
        self.novita = NovitaClient(
            base_url=self.simulator.url,
            api_key=SecretStr(self.simulator.api_key),
            request_timeout=self.settings.request_timeout,
            rate_limit_per_minute=0,
            breaker_threshold=0,
            retry=RetryPolicy(attempts=1, deadline=self.settings.request_deadline),
        )
        await self.novita.open()
        self.__dict__.pop("reader", None)  # it has the previous client
        self.creates = CreateBatcher(self.database)
        self.catalog = self.new_catalog()
        self.prober = Prober(private_addresses=PrivateAddresses.LOOPBACK)
        self.sender = Sender(
            timeout=self.settings.webhook_timeout,
            key=find_key(self.settings.webhook_signing_key, self.settings.pilotlight_home),
            private_addresses=self.settings.allow_private_webhooks,
        )
        self.worker = self.worker_with(self.novita)

    def new_catalog(self) -> Catalog:
        return Catalog(self.novita, product_ttl=timedelta(minutes=5), template_ttl=timedelta(minutes=5))

    @cached_property
    def reader(self) -> ProviderReader:
        """For commands that read a machine from the provider; without caches."""
        poller = InstancePoller(self.novita, calls_per_minute=self.settings.novita_rate_limit)
        ttl = timedelta(0)
        return ProviderReader(
            self.database, self.novita, poller, Caches(), instance_ttl=ttl, state_ttl=ttl, fleet_ttl=ttl
        )

    def services_with(self, novita: NovitaClient) -> JobServices:
        return JobServices(
            database=self.database,
            novita=novita,
            catalog=self.catalog,
            prober=self.prober,
            sender=self.sender,
            settings=self.settings,
            poller=InstancePoller(novita, calls_per_minute=self.settings.novita_rate_limit),
        )

    def worker_with(self, novita: NovitaClient, services: JobServices | None = None) -> Worker:
        return Worker(
            self.database,
            self.notifier,
            all_handlers(services or self.services_with(novita)),
            lease=timedelta(seconds=20),
            max_attempts=self.settings.max_retry_attempts,
            backoff=Backoff(base=timedelta(milliseconds=10)),
        )

    async def new_caller(self, project: str = "default", role: Role = Role.OPERATOR) -> Caller:
        return (await self.new_token(project, role))[1]

    async def new_token(self, project: str = "default", role: Role = Role.OPERATOR) -> tuple[str, Caller]:
        """The secret, and whose it is."""
        secret = new_secret()
        async with self.database.write() as session:
            token_id = await create_token(session, project=project, name="test", role=role, secret=secret)
            token = await session.get_one(Token, token_id)
            return secret, Caller(project_id=token.project_id, token_id=token.id, role=role)

    async def create(self, name: str = "one", *, by: Caller | None = None, **fields: Any) -> Accepted:
        """Accept a create as the API does: an image that serves HTTP on port 80 by default."""
        draft: dict[str, Any] = {"product_name": RTX, "ports": ()}
        if "template_id" not in fields:
            draft["image"] = "nginx:1.27"
        return await create_instance(
            self.creates,
            self.catalog,
            CreateDraft(name=name, **{**draft, **fields}),
            by=by or self.caller,
            defaults=Defaults(
                self.settings.default_regions,
                self.settings.estimated_ready_time,
                self.settings.allow_private_webhooks,
                Cipher.of(self.settings.encryption_key),
            ),
        )

    async def delete(self, instance_id: UUID, *, by: Caller | None = None) -> UUID:
        """Accept a delete; returns the operation's id."""
        async with self.database.write() as session:
            _, operation = await delete_instance(session, Target(instance_id), by=by or self.caller)
        return operation.id

    async def put(self, status: InstanceStatus = InstanceStatus.READY, **fields: Any) -> Instance:
        """A row as if it had come that far, with nothing behind it."""
        moment = now()
        values: dict[str, Any] = {
            "id": new_id(),
            "project_id": self.caller.project_id,
            "name": f"put-{new_id().hex[-8:]}",
            "version": 1,
            "product_name": RTX,
            "gpu_count": 1,
            "rootfs_size_gb": 60,
            "billing": "SPOT",
            "image": "nginx",
            "regions": [SINGAPORE],
            "created_at": moment,
            "updated_at": moment,
            "status_since": moment,
        }
        if status is InstanceStatus.FAILED:
            values["failure_code"] = "BROKEN"
        if status is InstanceStatus.DELETED:
            values["deleted_at"] = moment
        if status in (InstanceStatus.READY, InstanceStatus.HEALTH_CHECKING, InstanceStatus.RUNNING):
            values["running_at"] = moment
        if status is InstanceStatus.READY:
            values["ready_at"] = moment
        instance = Instance(**{**values, **fields}, status=status)
        async with self.database.write() as session:
            session.add(instance)
        return instance

    async def new_project(self, name: str) -> UUID:
        project = Project(id=new_id(), name=name)
        async with self.database.write() as session:
            session.add(project)
        return project.id

    async def enqueue(self, work: Work) -> int:
        async with self.database.write() as session:
            return await enqueue(session, work)

    async def work_once(self, worker: Worker | None = None) -> int:
        return await (worker or self.worker).work_once()

    async def hurry(self) -> None:
        """What waits for its time waits no longer."""
        await self.execute("UPDATE job SET run_at = now(), due_at = now() WHERE status = 'WAITING' AND run_at > now()")

    async def work_until(self, is_so: Callable[[], Awaitable[object]], worker: Worker | None = None) -> None:
        """Work, without waiting for pauses, until something is true."""

        async def one_more() -> bool:
            if await is_so():
                return True
            await self.hurry()
            await self.work_once(worker)
            return bool(await is_so())

        await until(one_more)

    async def work_until_status(self, instance_id: UUID, status: InstanceStatus, worker: Worker | None = None) -> None:
        async def is_there() -> bool:
            return (await self.instance(instance_id))["status"] == status

        await self.work_until(is_there, worker)

    async def work_until_over(self, operation_id: UUID) -> asyncpg.Record:
        async def is_over() -> bool:
            return (await self.operation(operation_id))["finished_at"] is not None

        await self.work_until(is_over)
        return await self.operation(operation_id)

    async def age_attempts(self) -> None:
        """As if every attempt had been made long ago, so that no grace is left."""
        await self.execute("UPDATE attempt SET created_at = created_at - interval '1 day'")

    async def instance(self, instance_id: UUID) -> asyncpg.Record:
        return await self.one("SELECT * FROM instance WHERE id = $1", instance_id)

    async def operation(self, operation_id: UUID) -> asyncpg.Record:
        return await self.one("SELECT * FROM operation WHERE id = $1", operation_id)

    async def attempts(self, operation_id: UUID) -> list[tuple[str, str | None, str, str | None]]:
        """(region, billing mode, status, reason) of each, in order."""
        rows = await self.rows(
            "SELECT region, billing_mode, status, reason_code FROM attempt WHERE operation_id = $1 ORDER BY number",
            operation_id,
        )
        return [tuple(row) for row in rows]

    async def events(self, instance_id: UUID) -> list[RecordedEvent]:
        """All events of an instance, in order."""
        rows = await self.rows(EVENTS, instance_id)
        return [
            RecordedEvent(row["type"], row["operation_id"], row["caused_by"], orjson.loads(row["data"])) for row in rows
        ]

    async def event_types(self, instance_id: UUID) -> list[str]:
        return [event.type for event in await self.events(instance_id)]

    async def counts(self) -> dict[str, int]:
        """How many rows a request may have left behind, and how many machines the provider ever made."""
        tables = ("instance", "operation", "attempt", "job", "event", "idempotency_key")
        found = {name: await self.value(f"SELECT count(*) FROM {name}") for name in tables}
        found["event"] += await self.value("SELECT count(*) FROM outbox")
        return {**found, "made": self.made()}

    def made(self, name: str = "") -> int:
        """Machines that the provider ever made for instances whose name begins so."""
        return sum(count for each, count in self.simulator.world.made.items() if each.startswith(name))

    def machines(self) -> list[Machine]:
        """What the provider still has, and bills."""
        self.simulator.world.advance()
        return [each for each in self.simulator.world.instances.values() if each.status != "removed"]

    def calls(self, route: str | None = None) -> int:
        calls = self.simulator.world.calls
        return calls.total() if route is None else calls[route]

    def faults(self, *faults: Fault) -> None:
        """From now on these, and no others."""
        self.simulator.world.faults.set(faults)

    def outage(self) -> None:
        """Makes the provider unreachable, until other faults are set."""
        self.faults(Fault(FaultKind.OUTAGE, status=0))

    def stock(self, region_id: str, free: int) -> None:
        """How many of each product are free in one of the provider's clusters, or in all ("*")."""
        world = self.simulator.world
        for product, cluster in list(world.catalog.total):
            if region_id in ("*", cluster):
                world.set_stock(product, cluster, free)

    async def rows(self, query: str, *args: Any) -> list[asyncpg.Record]:
        return await self.database.raw.fetch(query, *args)

    async def one(self, query: str, *args: Any) -> asyncpg.Record:
        (row,) = await self.rows(query, *args)
        return row

    async def value(self, query: str, *args: Any) -> Any:
        return await self.database.raw.fetchval(query, *args)

    async def execute(self, query: str, *args: Any) -> None:
        await self.database.raw.execute(query, *args)


@asynccontextmanager
async def a_simulator(**options: Any) -> AsyncIterator[Simulator]:
    """A provider whose machines come up within a tenth of a second, and whose prices stand still."""
    async with Simulator(SimulatorOptions(**{"speed": 100, "price_drift": 0, **options})) as simulator:
        yield simulator


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a rate limit, pages of many machines are read ten times as often."""
    monkeypatch.setattr("server.instances.provider.poller.ASSUMED_RATE_LIMIT", 6_000)
    monkeypatch.setattr("server.instances.provider.sweep_schedule.INTERVAL_MIN", 0.1)


@pytest.fixture
async def world(database: Database, signals: Notifier) -> AsyncIterator[World]:
    async with a_simulator() as simulator:
        world = World(database, signals, simulator)
        # A server of the test before may have bound the database in its last moment.
        await world.execute("DELETE FROM provider_identity")
        await world.open()
        try:
            yield world
        finally:
            await world.close()
