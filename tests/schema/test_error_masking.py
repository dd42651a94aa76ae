"""Unexpected errors: what the client gets, what the log has, and that the server recovers."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from structlog.testing import capture_logs

from server.auth.tokens import create_token, new_secret
from server.db.database import Database
from server.enums import Role
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api
from tests.support.api_server import Server, serving
from tests.support.databases import DatabaseMaker
from tests.support.waiting import until
from tests.support.world import a_simulator

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
        """Refuses new connections and terminates open ones, or allows them again."""
        name = self.url.rsplit("/", 1)[1].partition("?")[0]
        await self.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {not is_shut}', elsewhere=True)
        if is_shut:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            await self.execute(f"{end} '{name}'", elsewhere=True)


@pytest.fixture
async def breakable(new_database: DatabaseMaker, server_url: str) -> AsyncIterator[Breakable]:
    url = await new_database.migrated()
    database, token = Database(url, pool_size=1), new_secret()
    async with database.write() as session:
        await create_token(session, project="p", name="t", role=Role.OPERATOR, secret=token)
    await database.close()
    async with a_simulator() as simulator, serving(url, simulator) as server:
        yield Breakable(server, url, server_url, token)


async def test_a_mistake_of_ours_is_masked_with_an_id_and_logged_whole(breakable: Breakable):
    await breakable.execute("ALTER TABLE instance RENAME COLUMN created_at TO changed_at")

    with capture_logs() as logs:
        answer = await breakable.server.ask("{ instances { nodes { id } } }", token=breakable.token)

    assert answer.error == {
        "message": "Something went wrong on our side.",
        "code": "INTERNAL",
        "retryable": False,
        "requestId": answer.headers["x-request-id"],
    }
    assert "created_at" not in str(answer.body)
    (line,) = [each for each in logs if each["event"] == "request.failed"]
    assert line["log_level"] == "error"
    assert "created_at" in str(line["exc_info"])


async def test_with_the_database_away_errors_are_retryable_and_the_server_recovers(breakable: Breakable):
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


CODES = {
    "query_canceled": "57014",
    "lock_not_available": "55P03",
    "deadlock_detected": "40P01",
    "serialization_failure": "40001",
    "admin_shutdown": "57P01",
    "crash_shutdown": "57P02",
    "cannot_connect_now": "57P03",
    "too_many_connections": "53300",
    "idle_in_transaction_session_timeout": "25P03",
}


async def test_request_that_the_database_could_not_serve_now_may_be_sent_again(breakable: Breakable):
    server, token = breakable.server, breakable.token
    created = await server.ask(CREATE.replace('"x"', '"first"'), token=token)
    delete = f'mutation {{ deleteInstance(input: {{id: "{created.data["createInstance"]["instance"]["id"]}"}}) '
    documents = (CREATE, delete + "{ errors { code } } }")
    for code in CODES.values():
        await breakable.execute(
            f"CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" RAISE EXCEPTION 'busy' USING ERRCODE = '{code}'; END $$;"
            "CREATE TRIGGER busy BEFORE INSERT ON operation EXECUTE FUNCTION busy()"
        )
        for document in documents:
            answer = await server.ask(document, token=token)
            assert (code, answer.error["code"], answer.error["retryable"]) == (code, "UNAVAILABLE", True)
        await breakable.execute("DROP FUNCTION busy CASCADE")

    for document in documents:
        assert "errors" not in (await server.ask(document, token=token)).body


async def test_cancelled_and_terminated_reads_may_be_sent_again(breakable: Breakable):
    server, token = breakable.server, breakable.token
    assert (await server.ask(LIST, token=token)).data == {"instances": {"totalCount": 0}}
    waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    holder = await asyncpg.connect(breakable.url)
    try:
        for end in ("pg_cancel_backend", "pg_terminate_backend"):
            async with holder.transaction():
                await holder.execute("LOCK TABLE instance IN ACCESS EXCLUSIVE MODE")
                request = asyncio.create_task(server.ask(LIST, token=token))

                async def is_waiting() -> bool:
                    return bool(await holder.fetchval(f"SELECT count(*) {waiting}"))

                await until(is_waiting)
                await holder.execute(f"SELECT {end}(pid) {waiting}")
                answer = await request
                assert (end, answer.error["code"], answer.error["retryable"]) == (end, "UNAVAILABLE", True)
    finally:
        await holder.close()


async def test_an_absent_provider_is_reported_with_its_code_and_leaves_nothing(api: Api):
    world = api.world
    # The circuit opens at once, so that the client's own patience is not waited for.
    async with serving(api.server.runtime.database_url, api.server.simulator, breaker_threshold=1) as cold:
        world.outage()
        answer = await cold.ask(CREATE, token=api.token)

    assert (answer.error["code"], answer.error["retryable"]) == ("CIRCUIT_OPEN", True)
    assert 0 < answer.error["retryAfterMs"] <= 60_000
    counts = await world.counts()
    assert (counts["instance"], counts["operation"], counts["job"], counts["event"]) == (0, 0, 0, 0)


async def test_a_refused_key_is_in_readiness_and_metrics_and_is_not_tried_again_at_once(api: Api):
    world = api.world
    async with serving(api.server.runtime.database_url, api.server.simulator) as cold:
        world.faults(Fault(FaultKind.ERROR, status=401, reason="INVALID_API_KEY", message="no such key"))
        first = await cold.ask(CREATE, token=api.token)
        calls = world.calls()
        second = await cold.ask(CREATE, token=api.token)
        async with cold.http.get(f"http://{cold.address}/readyz") as response:
            ready = (response.status, (await response.json())["checks"]["provider"])
        async with cold.http.get(f"http://{cold.address}/metrics") as response:
            metrics = await response.text()

    assert (first.error["code"], first.error["retryable"]) == ("PROVIDER_AUTH_FAILED", True)
    assert (second.error["code"], second.error["retryable"]) == ("PROVIDER_SUSPENDED", True)
    assert world.calls() == calls
    assert ready == (200, "the provider refuses our key or account: no such key (HTTP 401); accepted work waits")
    assert "pilotlight_provider_suspended 1.0" in metrics
