"""What a resolver may reach."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import strawberry
from sqlalchemy.ext.asyncio import AsyncSession

from schema.loaders import Loaders
from server.auth.caller import Caller
from server.auth.projects import Projects
from server.auth.tokens import Tokens
from server.catalog.caches import Caches
from server.catalog.catalog import Catalog
from server.config import Settings
from server.db.engine import Database
from server.db.rehearsal import Rehearsal
from server.events.tail import Tail
from server.facts import Facts
from server.instances.watch import Watch
from server.webhooks.secrets import SigningKey


@dataclass(frozen=True, slots=True)
class Services:
    """What all requests of a process share."""

    database: Database
    rehearsal: Rehearsal
    catalog: Catalog
    caches: Caches
    watch: Watch
    tail: Tail
    tokens: Tokens
    projects: Projects
    facts: Facts
    settings: Settings
    webhook_key: SigningKey | None


class Context:
    """One request, or one socket; a socket's caller may only be known once it has introduced itself."""

    def __init__(self, services: Services, *, request_id: str, is_socket: bool) -> None:
        self._services = services
        self._rehearsed: Services | None = None
        self.request_id = request_id
        self.connection_params: dict[str, Any] | None = None
        self._is_socket = is_socket
        self._caller: Caller | None = None
        self._loaders: Loaders | None = None

    def admit(self, caller: Caller) -> None:
        self._caller = caller
        self._loaders = None

    @property
    def services(self) -> Services:
        return self._rehearsed or self._services

    @property
    def is_rehearsal(self) -> bool:
        return self._rehearsed is not None

    @contextmanager
    def rehearsing(self) -> Generator[None]:
        """Meanwhile nothing stays written. Mutations of one document run one after the other, so it is one's own."""
        self._rehearsed = replace(self._services, database=self._services.rehearsal)
        try:
            yield
        finally:
            self._rehearsed = None

    @property
    def is_admitted(self) -> bool:
        return self._caller is not None

    @property
    def caller(self) -> Caller:
        if self._caller is None:
            raise PermissionError("nobody is known to be asking")
        return self._caller

    @property
    def loaders(self) -> Loaders:
        if self._loaders is None:  # made when they are needed: most requests need none
            self._loaders = Loaders(self._services.database, self.caller, keep=not self._is_socket)
        return self._loaders

    async def runs_the_server(self) -> bool:
        """Whether what concerns all projects is this caller's affair."""
        return await self.services.projects.runs_the_server(self.caller)

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        async with self.services.database.read() as session:
            yield session

    @asynccontextmanager
    async def read_widely(self) -> AsyncGenerator[AsyncSession]:
        """For pages and counts: from a replica, where there is one that has everything."""
        async with self.services.database.read_widely() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        async with self.services.database.write() as session:
            yield session


Info = strawberry.Info[Context, None]
