"""When something breaks: what the caller is told, what the log keeps, and that it goes on afterwards."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from structlog.testing import capture_logs

from server.auth.tokens import create_token, new_secret
from server.db.engine import Database
from server.db.migrate import upgrade
from server.words import Role
from tests.conftest import DatabaseMaker
from tests.schema.api import Server, serving
from tests.schema.conftest import Api
from tests.world import a_simulator, until

LIST = "{ instances { totalCount } }"
CREATE = """
    mutation { createInstance(input: {name: "x", productName: "RTX 4090 24GB", image: "i"}) { instance { id } } }
"""


class Breakable:
    """A served application on a database of its own, which a test may break."""

    def __init__(self, server: Server, url: str, admin_url: str, token: str) -> None:
        self.server = server
        self.url = url
        self.token = token
        self._admin_url = admin_url

    async def execute(self, statement: str, *, elsewhere: bool = False) -> None:
        connection = await asyncpg.connect(self._admin_url if elsewhere else self.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def shut(self, is_shut: bool) -> None:
        """Let nobody in, and throw out who is in; or let them in again."""
        name = self.url.rsplit("/", 1)[1].partition("?")[0]
        await self.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {not is_shut}', elsewhere=True)
        if is_shut:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            await self.execute(f"{end} '{name}'", elsewhere=True)


@pytest.fixture
async def breakable(new_database: DatabaseMaker, server_url: str) -> AsyncIterator[Breakable]:
    url = await new_database()
    await upgrade(url)
    database, token = Database(url, pool_size=1), new_secret()
    async with database.write() as session:
        await create_token(session, project="p", name="t", role=Role.OPERATOR, secret=token)
    await database.close()
    async with a_simulator() as simulator, serving(url, simulator) as server:
        yield Breakable(server, url, server_url, token)


async def test_a_mistake_of_ours_is_masked_with_an_id_and_logged_whole(breakable: Breakable):
    await breakable.execute("ALTER TABLE instance RENAME COLUMN updated_at TO changed_at")

    with capture_logs() as logs:
        answer = await breakable.server.ask("{ instances { nodes { id } } }", token=breakable.token)

    assert answer.error == {
        "message": "Something went wrong on our side.",
        "code": "INTERNAL",
        "retryable": False,
        "requestId": answer.headers["x-request-id"],
    }
    assert "updated_at" not in str(answer.body)
    (line,) = [each for each in logs if each["event"] == "request.failed"]
    assert line["log_level"] == "error"
    assert "updated_at" in str(line["exc_info"])


async def test_with_the_database_away_callers_are_told_to_come_back_and_then_it_goes_on(breakable: Breakable):
    server, token = breakable.server, breakable.token
    assert (await server.ask(LIST, token=token)).data == {"instances": {"totalCount": 0}}

    await breakable.shut(True)
    for document in (LIST, CREATE, LIST):
        answer = await server.ask(document, token=token)
        assert answer.status in (200, 503)
        assert (answer.error["code"], answer.error["retryable"], answer.error["retryAfterMs"]) == (
            "UNAVAILABLE",
            True,
            1000,
        )
        assert answer.error["requestId"] == answer.headers["x-request-id"]
    async with server.http.get(f"http://{server.address}/readyz") as response:
        assert response.status == 503
        assert (await response.json())["checks"]["database"].startswith("can't be reached")
    async with server.http.get(f"http://{server.address}/healthz") as response:
        assert response.status == 200

    await breakable.shut(False)

    async def is_back() -> bool:
        return "errors" not in (await server.ask(LIST, token=token)).body

    await until(is_back)


async def test_a_provider_that_is_away_is_told_with_its_code_and_nothing_is_left(api: Api):
    world = api.world
    # The circuit opens at once, so that the client's own patience is not waited for.
    async with serving(api.server.runtime.database_url, api.server.simulator, breaker_threshold=1) as cold:
        world.outage()
        answer = await cold.ask(CREATE, token=api.token)

    assert (answer.error["code"], answer.error["retryable"]) == ("CIRCUIT_OPEN", True)
    assert 0 < answer.error["retryAfterMs"] <= 60_000
    counts = await world.counts()
    assert (counts["instance"], counts["operation"], counts["job"], counts["event"]) == (0, 0, 0, 0)
