"""The context of a request: caller, services, loaders and transactions."""

from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace

import strawberry
from sqlalchemy.ext.asyncio import AsyncSession

from schema.loaders import Loaders
from server.account.objects import Account
from server.audit.log import AuditLog
from server.auth.caller import Caller
from server.auth.projects import Projects
from server.auth.tokens import Tokens
from server.cache.registry import Caches
from server.catalog.catalog import Catalog
from server.catalog.owners import Item, visible
from server.config import Settings
from server.db.database import Database
from server.db.dry_run import DryRun
from server.db.seals import Seals
from server.encryption import Cipher
from server.enums import ProviderObjectKind
from server.events.cursors import Cursors
from server.events.event import Cursor
from server.events.tail import Tail
from server.instances.commands.create_rows import CreateBatcher
from server.instances.provider.reader import ProviderReader
from server.instances.queries.log import LogReader
from server.lifetimes.heartbeat import Heartbeats
from server.server_info import ServerInfo
from server.webhooks.signing import SigningKey


@dataclass(frozen=True, slots=True)
class Services:
    """Services shared by all requests of a process."""

    database: Database
    dry_run: DryRun
    creates: CreateBatcher
    heartbeats: Heartbeats
    catalog: Catalog
    account: Account
    caches: Caches
    provider_reader: ProviderReader
    log_reader: LogReader
    tail: Tail
    tokens: Tokens
    projects: Projects
    server_info: ServerInfo
    settings: Settings
    webhook_key: SigningKey | None
    seals: Seals
    cursors: Cursors
    cipher: Cipher
    audit: AuditLog


class Context:
    """One request or one WebSocket; the caller of a WebSocket is set after its connection_init message."""

    def __init__(
        self,
        services: Services,
        *,
        request_id: str,
        is_socket: bool,
        selections: dict[int, frozenset[str]] | None = None,
    ) -> None:
        """`selections` belongs to the operation: what `schema.selection` found in it."""
        self._services = services
        self.selections = {} if selections is None else selections
        self._dry_run_services: Services | None = None
        self.request_id = request_id
        self._is_socket = is_socket
        self._caller: Caller | None = None
        self._loaders: Loaders | None = None

    def admit(self, caller: Caller) -> None:
        self._caller = caller
        self._loaders = None

    @property
    def services(self) -> Services:
        return self._dry_run_services or self._services

    @property
    def is_validate_only(self) -> bool:
        return self._dry_run_services is not None

    @contextmanager
    def dry_run(self) -> Generator[None]:
        """Rolls back every transaction inside the block. Mutations of a document run one by one, so none overlap."""
        dry_run = self._services.dry_run
        self._dry_run_services = replace(
            self._services,
            database=dry_run,
            creates=CreateBatcher(dry_run, self._services.creates.line),
            account=replace(self._services.account, database=dry_run),
            heartbeats=Heartbeats(dry_run),
        )
        try:
            yield
        finally:
            self._dry_run_services = None

    @property
    def caller(self) -> Caller:
        if self._caller is None:
            raise PermissionError("the request has no caller yet")
        return self._caller

    @property
    def loaders(self) -> Loaders:
        if self._loaders is None:  # created on first use: most requests need none
            self._loaders = Loaders(
                self._services.database,
                self._services.catalog,
                self._services.creates.line,
                self.caller,
                keep=not self._is_socket,
            )
        return self._loaders

    async def is_server_admin(self) -> bool:
        """Whether the caller administers the server."""
        return await self.services.projects.is_server_admin(self.caller)

    def state_cursor(self, cursor: Cursor) -> str:
        """The cursor of a state that was just read."""
        return self._services.cursors.of_state(cursor)

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        return self.services.database.read()

    def read_from_replica_if_fresh(self) -> AbstractAsyncContextManager[AsyncSession]:
        """For pages and counts: reads from a replica that has all confirmed writes, else from the primary."""
        return self.services.database.read_from_replica_if_fresh()

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        return self.services.database.write()


Info = strawberry.Info[Context, None]


async def visible_to(info: Info, kind: ProviderObjectKind, items: Sequence[Item]) -> list[Item]:
    """Objects of the provider account without those of other projects."""
    context = info.context
    return await visible(context.services.database, kind, items, project_id=context.caller.project_id)
