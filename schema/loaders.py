"""One loader per relation, made per request: a list's children cost one query, however long the list."""

from datetime import datetime
from functools import cached_property
from uuid import UUID

from sqlalchemy import select
from strawberry.dataloader import DataLoader

from server.auth.caller import Caller
from server.auth.projects import get_projects
from server.auth.reads import get_tokens
from server.db.engine import Database
from server.db.tables import Attempt, Delivery, DeliveryAttempt, Instance, Operation, ProbeResult, Project, Token
from server.instances import light, reads
from server.probes.results import results_of
from server.queue.reads import JobView, get_jobs
from server.webhooks.reads import attempts_of, get_deliveries


class Loaders:
    """`keep` is off on sockets: what was read for one message must not answer for a later one.

    Each is made when it is first asked for: hardly any request needs more than one of them.
    """

    def __init__(self, database: Database, caller: Caller, *, keep: bool) -> None:
        self._database = database
        self._project_id = caller.project_id
        self._keep = keep
        self._newest: dict[int, DataLoader[UUID, list[Operation]]] = {}

    @cached_property
    def instance(self) -> DataLoader[UUID, Instance | None]:
        return DataLoader(self._instances, cache=self._keep)

    @cached_property
    def operation(self) -> DataLoader[UUID, Operation | None]:
        return DataLoader(self._operations, cache=self._keep)

    @cached_property
    def attempts(self) -> DataLoader[UUID, list[Attempt]]:
        return DataLoader(self._attempts, cache=self._keep)

    @cached_property
    def open_operation(self) -> DataLoader[UUID, Operation | None]:
        return DataLoader(self._open_operations, cache=self._keep)

    @cached_property
    def env(self) -> DataLoader[UUID, dict[str, str]]:
        return DataLoader(self._env, cache=self._keep)

    @cached_property
    def health(self) -> DataLoader[UUID, list[ProbeResult]]:
        return DataLoader(self._health, cache=self._keep)

    @cached_property
    def webhook(self) -> DataLoader[UUID, tuple[str, datetime | None] | None]:
        return DataLoader(self._webhooks, cache=self._keep)

    @cached_property
    def token(self) -> DataLoader[UUID, Token | None]:
        return DataLoader(self._tokens, cache=self._keep)

    @cached_property
    def any_token(self) -> DataLoader[UUID, Token | None]:
        return DataLoader(self._any_tokens, cache=self._keep)

    @cached_property
    def project(self) -> DataLoader[UUID, Project | None]:
        return DataLoader(self._projects, cache=self._keep)

    @cached_property
    def job(self) -> DataLoader[int, JobView | None]:
        return DataLoader(self._jobs, cache=self._keep)

    @cached_property
    def delivery(self) -> DataLoader[UUID, Delivery | None]:
        return DataLoader(self._delivery, cache=self._keep)

    @cached_property
    def delivery_attempts(self) -> DataLoader[UUID, list[DeliveryAttempt]]:
        return DataLoader(self._deliveries, cache=self._keep)

    def operations(self, first: int) -> DataLoader[UUID, list[Operation]]:
        """The newest of each instance: one loader for each number that a query asks for."""
        loader = self._newest.get(first)
        if loader is None:

            async def load(instance_ids: list[UUID]) -> list[list[Operation]]:
                return await self._newest_operations(instance_ids, first)

            loader = self._newest[first] = DataLoader(load, cache=self._keep)
        return loader

    async def _newest_operations(self, instance_ids: list[UUID], first: int) -> list[list[Operation]]:
        async with self._database.read() as session:
            found = await reads.newest_operations(session, instance_ids, project_id=self._project_id, first=first)
        return [found[id] for id in instance_ids]

    async def _instances(self, ids: list[UUID]) -> list[Instance | None]:
        found = await light.by_ids(self._database, ids, project_id=self._project_id)
        return [found.get(id) for id in ids]

    async def _operations(self, ids: list[UUID]) -> list[Operation | None]:
        async with self._database.read() as session:
            found = await reads.get_operations(session, ids, project_id=self._project_id)
        return [found.get(id) for id in ids]

    async def _attempts(self, operation_ids: list[UUID]) -> list[list[Attempt]]:
        async with self._database.read() as session:
            found = await reads.attempts_by_operation(session, operation_ids)
        return [found[id] for id in operation_ids]

    async def _open_operations(self, instance_ids: list[UUID]) -> list[Operation | None]:
        async with self._database.read() as session:
            found = await reads.open_operations(session, instance_ids, project_id=self._project_id)
        return [found.get(id) for id in instance_ids]

    async def _env(self, instance_ids: list[UUID]) -> list[dict[str, str]]:
        async with self._database.read() as session:
            rows = await session.execute(
                select(Instance.id, Instance.env).where(
                    Instance.id.in_(instance_ids), Instance.project_id == self._project_id
                )
            )
            found = {row.id: row.env for row in rows}
        return [found.get(id, {}) for id in instance_ids]

    async def _health(self, instance_ids: list[UUID]) -> list[list[ProbeResult]]:
        async with self._database.read() as session:
            found = await results_of(session, instance_ids)
        return [found[id] for id in instance_ids]

    async def _webhooks(self, instance_ids: list[UUID]) -> list[tuple[str, datetime | None] | None]:
        async with self._database.read() as session:
            rows = await session.execute(
                select(Instance.id, Instance.webhook_url, Instance.webhook_disabled_at).where(
                    Instance.id.in_(instance_ids),
                    Instance.project_id == self._project_id,
                    Instance.webhook_url.is_not(None),
                )
            )
            found = {row.id: (str(row.webhook_url), row.webhook_disabled_at) for row in rows}
        return [found.get(id) for id in instance_ids]

    async def _tokens(self, ids: list[UUID]) -> list[Token | None]:
        async with self._database.read() as session:
            found = await get_tokens(session, ids, project_id=self._project_id)
        return [found.get(id) for id in ids]

    async def _any_tokens(self, ids: list[UUID]) -> list[Token | None]:
        """For those who run the server."""
        async with self._database.read() as session:
            found = await get_tokens(session, ids, project_id=None)
        return [found.get(id) for id in ids]

    async def _projects(self, ids: list[UUID]) -> list[Project | None]:
        """Whoever asks has found their ids in what they may see."""
        async with self._database.read() as session:
            found = await get_projects(session, ids)
        return [found.get(id) for id in ids]

    async def _jobs(self, ids: list[int]) -> list[JobView | None]:
        async with self._database.read() as session:
            found = await get_jobs(session, ids, project_id=self._project_id)
        return [found.get(id) for id in ids]

    async def _delivery(self, ids: list[UUID]) -> list[Delivery | None]:
        async with self._database.read() as session:
            found = await get_deliveries(session, ids, project_id=self._project_id)
        return [found.get(id) for id in ids]

    async def _deliveries(self, delivery_ids: list[UUID]) -> list[list[DeliveryAttempt]]:
        async with self._database.read() as session:
            found = await attempts_of(session, delivery_ids)
        return [found[id] for id in delivery_ids]
