"""The `api` fixture: a served application with a token, a world and a client."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from server.auth.caller import Caller
from server.db.notify import Notifier
from tests.support.api_server import Answer, Server, serving
from tests.support.databases import DatabaseMaker, RowDeleter
from tests.support.kept import KeptConnections
from tests.support.world import World, a_simulator


@dataclass(frozen=True, slots=True)
class Api:
    """One caller of the served application, and the world behind it."""

    server: Server
    world: World
    token: str
    caller: Caller

    async def ask(self, document: str, *, token: str | None = None, **variables: Any) -> Answer:
        return await self.server.ask(document, token=token or self.token, variables=variables)

    async def create(self, **fields: Any) -> dict[str, Any]:
        """The payload of a createInstance."""
        document = """
            mutation ($input: CreateInstanceInput!) {
              createInstance(input: $input) {
                replayed instance { id name status version } operation { id status }
                errors { __typename code message path ... on NoCapacity { attempts { region billingMode code } } }
              }
            }
        """
        given = {"name": "web", "productName": "RTX 4090 24GB", "image": "nginx", **fields}
        return (await self.ask(document, input=given)).data["createInstance"]

    async def delete(self, id: str, *, token: str | None = None) -> dict[str, Any]:
        document = """
            mutation ($id: ID!) {
              deleteInstance(input: {id: $id}) {
                instance { id status } operation { id kind status }
                errors { __typename code path ... on InvalidTransition { current allowed } }
              }
            }
        """
        return (await self.ask(document, token=token, id=id)).data["deleteInstance"]


@pytest.fixture(scope="session")
async def server(new_database: DatabaseMaker) -> AsyncIterator[Server]:
    """On a database of its own, and without a worker: what happens, happens because the test works."""
    url = await new_database.migrated()
    async with a_simulator(stock_factor=1000) as simulator, serving(url, simulator) as server:
        yield server


@pytest.fixture
async def api(server: Server, kept_connections: KeptConnections, delete_rows: RowDeleter) -> AsyncIterator[Api]:
    url = server.runtime.database_url
    async with kept_connections.database(url) as database:
        signals = Notifier(database)
        signals.start()
        world = World(database, signals, server.simulator)
        await world.open()
        token, caller = await world.new_token()
        world.caller = caller
        try:
            yield Api(server, world, token, caller)
        finally:
            world.faults()
            server.runtime.novita.breaker._routes.clear()  # a test's faults open no circuit for the next
            await world.close()
            await signals.stop()
    await delete_rows(url)
