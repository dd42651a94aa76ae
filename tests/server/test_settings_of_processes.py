"""Settings of queue, limits, replicas and commands, each shown through the setting itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from io import BytesIO

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from server.config import Settings
from server.enums import InstanceStatus
from server.novita.client import NovitaClient
from server.novita.models import CreateInstance
from server.queue.kinds import CleanUp, LookAtMachine
from server.runtime import Runtime
from server.simulator.faults import Fault, FaultKind
from tests.ha.streaming import PostgresServer, primary_and_replica
from tests.server.test_settings import LONG, another
from tests.support.api import Api
from tests.support.processes import control, pilotlight
from tests.support.waiting import until
from tests.support.world import CREATE, World

HELD_CREATES = "SELECT count(*) FROM job WHERE kind = 'CREATE_INSTANCE' AND worker_id IS NOT NULL"
CLEAN_UPS = "SELECT count(*) FROM job WHERE kind = 'CLEANUP'"
LOOKS = "SELECT count(*) FROM job WHERE kind = 'LOOK_AT_MACHINE'"
UNNOTIFIED = """
    INSERT INTO job (kind, args, priority, run_at, due_at)
    VALUES ('LOOK_AT_MACHINE', jsonb_build_object('instance_id', $1::text),
            1, now(), now() + interval '1 minute')
"""


def equals(world: World, query: str, number: int) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return await world.value(query) == number

    return is_so


async def test_as_many_jobs_run_at_once_as_the_setting_says(api: Api):
    """Creates have one slot of their own beside those."""
    for number in range(6):
        await api.create(name=f"web-{number}")
    api.world.faults(Fault(FaultKind.HANG, routes=(CREATE,)))
    quick = {"request_timeout": timedelta(seconds=2), "shutdown_timeout": timedelta(milliseconds=100)}
    async with another(api, max_concurrent_jobs=1, **quick) as server:
        server.runtime.work()
        await until(equals(api.world, HELD_CREATES, 2))
        await api.world.enqueue(CleanUp())  # claimed after the creates, by a worker that takes all it has room for
        await until(equals(api.world, CLEAN_UPS, 0))
        assert await api.world.value(HELD_CREATES) == 2


async def test_a_job_without_notification_waits_for_the_poll_interval(api: Api):
    row = await api.world.put(InstanceStatus.DELETED)
    async with another(api, job_poll_interval=LONG) as server:
        server.runtime.work()
        await api.world.enqueue(LookAtMachine(row.id))
        await until(equals(api.world, LOOKS, 0))  # the worker fetches, and listens
        # It fetches once more after each job, perhaps after this insert; by the default of a second it would always.
        for _ in range(4):
            await api.world.execute(UNNOTIFIED, str(row.id))
            await asyncio.sleep(1.2)
            if await api.world.value(LOOKS) == 1:
                break
        assert await api.world.value(LOOKS) == 1


async def test_the_tokens_of_a_project_share_the_rate_of_the_setting(api: Api):
    colleague, _ = await api.world.new_token()
    neighbour, _ = await api.world.new_token("neighbour")
    async with another(api, request_rate_limit=0, request_rate_limit_per_project=30) as server:
        first = await server.ask("{ __typename }", token=api.token)  # a new document counts more
        answers = [await server.ask("{ __typename }", token=token) for token in (api.token, colleague) * 15]
        other = await server.ask("{ __typename }", token=neighbour)

    assert (first.status, other.status) == (200, 200)
    assert {answers[-2].status, answers[-1].status} == {429}
    assert answers[-1].error["code"] == "RATE_LIMITED"


@pytest.mark.parametrize(("length", "status"), [(2000, 200), (2001, 413)])
async def test_a_body_has_as_many_bytes_as_the_setting_says(api: Api, length: int, status: int):
    body = b'{"query": "{ __typename }"}'.ljust(length)
    async with another(api, request_body_limit=2000) as server:
        headers = {"authorization": f"Bearer {api.token}", "content-type": "application/json"}
        url = f"http://{server.address}/graphql"
        async with server.http.post(url, data=BytesIO(body), headers=headers) as response:
            assert response.status == status


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[tuple[PostgresServer, PostgresServer]]:
    async with primary_and_replica() as both:
        await both[0].ask("CREATE TABLE written (number int)")
        yield both


@pytest.mark.parametrize(("patience", "is_replica"), [(LONG, True), (timedelta(milliseconds=1), False)])
async def test_reads_wait_for_the_replica_of_the_settings(
    servers: tuple[PostgresServer, PostgresServer], patience: timedelta, is_replica: bool
):
    primary, replica = servers
    urls = {"database_url": SecretStr(primary.url()), "database_read_url": SecretStr(replica.url())}
    settings = Settings(**urls, database_read_patience=patience)
    key = SecretStr("sk_unused")
    database = Runtime(settings, database_url=primary.url(), novita_url="http://127.0.0.1:9", novita_key=key).database

    async def read() -> tuple[int, bool]:
        async with database.read_from_replica_if_fresh() as session:
            found = await session.execute(text("SELECT count(*), pg_is_in_recovery() FROM written"))
            return tuple(found.one())

    try:
        before, _ = await read()
        await replica.ask("SELECT pg_wal_replay_pause()")
        async with database.write() as session:
            await session.execute(text("INSERT INTO written VALUES (1)"))
        reading = asyncio.create_task(read())
        await asyncio.wait([reading], timeout=0.4 if is_replica else 20)  # the default is a tenth of a second
        assert reading.done() is not is_replica
        await replica.ask("SELECT pg_wal_replay_resume()")
        assert await reading == (before + 1, is_replica)
    finally:
        await replica.ask("SELECT pg_wal_replay_resume()")
        await database.close()


async def test_the_simulator_is_as_fast_as_the_setting_says():
    """A machine takes 4.8 s to run at the default speed, at least."""
    async with pilotlight("simulate", "--port", "0", env={"SIMULATOR_SPEED": "1000"}) as simulator:
        await simulator.says("nothing real is created")
        url = next(word for word in simulator.said.split() if word.startswith("http://"))
        async with NovitaClient(base_url=url, api_key=SecretStr("sk_x")) as novita:
            product = next(each for each in await novita.products() if each.is_deployable)
            await novita.create_instance(CreateInstance("fast", product.id, "nginx", rootfs_gb=60))

        async def is_running() -> bool:
            return (await control(url, "state"))["byStatus"].get("running") == 1

        await until(is_running, within=4)
