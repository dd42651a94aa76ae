"""Webhooks from real processes to a real receiver, with default settings and across kill -9 of the sender."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from aiohttp import web

from server.clock import new_id, now
from server.db.database import Database
from server.db.tables import Instance, Project, ProjectWebhook
from server.enums import InstanceStatus
from server.instances import transitions
from tests.support.databases import DatabaseMaker
from tests.support.processes import Pilotlight, Up, pilotlight
from tests.support.receiver import Receiver
from tests.support.waiting import until

S = InstanceStatus
INSTANCES = 12
STORY = (S.HEALTH_CHECKING, S.READY, S.EXITED)
TYPES = ("instance.health_checking", "instance.ready", "instance.exited")


async def ask(running: Up, document: str, **variables: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {running.token}"}
    body = {"query": document, "variables": variables}
    async with aiohttp.ClientSession(headers=headers) as http, http.post(running.graphql_url, json=body) as response:
        answer = await response.json()
    assert "errors" not in answer, answer
    return answer["data"]


async def test_a_local_receiver_gets_every_event_with_default_settings(shared_up: Up, receiver: Receiver):
    secret = (await ask(shared_up, "mutation { rotateWebhookSecret { secret } }"))["rotateWebhookSecret"]["secret"]
    create = """
        mutation ($url: String!) {
          createInstance(input: {
            name: "told", productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}], webhookUrl: $url
          }) { instance { id } errors { code message } }
        }
    """
    created = (await ask(shared_up, create, url=receiver.url))["createInstance"]
    assert created["errors"] == []

    await until(lambda: "operation.finished" in receiver.types, within=60)

    messages = receiver.verify(secret)
    story = [each["type"] for each in messages if each["type"] != "health.checked"]
    assert story == [
        "instance.created",
        "instance.starting",
        "instance.running",
        "instance.health_checking",
        "instance.ready",
        "operation.finished",
    ]
    assert {each["data"]["instanceId"] for each in messages} == {created["instance"]["id"]}
    remove = "mutation ($id: ID!) { deleteInstance(input: {id: $id}) { errors { code } } }"
    await ask(shared_up, remove, id=created["instance"]["id"])
    await until(lambda: "instance.deleted" in receiver.types, within=60)
    # Neither the secret nor the URL, which may hold a token, is in the logs.
    assert secret.removeprefix("whsec_") not in shared_up.said
    assert receiver.url not in shared_up.said


@pytest.fixture
async def url(new_database: DatabaseMaker) -> str:
    """A database for the real processes of one test alone."""
    return await new_database.migrated()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    yield database
    await database.close()


async def tell(database: Database, url: str) -> None:
    """Three events of each of some instances, committed as any change is; the project has a webhook, too."""
    project = Project(id=new_id(), name="default")
    moment = now()
    instances = [
        Instance(
            id=new_id(),
            project_id=project.id,
            name=f"told-{number}",
            status=S.RUNNING,
            version=1,
            product_name="RTX 4090 24GB",
            gpu_count=1,
            rootfs_size_gb=60,
            billing="SPOT",
            image="nginx",
            running_at=moment,
            created_at=moment,
            updated_at=moment,
            status_since=moment,
            webhook_url=url,
        )
        for number in range(INSTANCES)
    ]
    async with database.write() as session:
        session.add(project)
        await session.flush()
        session.add_all(instances)
        session.add(ProjectWebhook(project_id=project.id, url=url, types=list(TYPES), after=0))
    for instance in instances:
        for status in STORY:
            async with database.write() as session:
                await transitions.transition(session, instance.id, status, cause=transitions.Cause())


@asynccontextmanager
async def a_worker(database_url: str) -> AsyncIterator[Pilotlight]:
    env = {
        "DATABASE_URL": database_url,
        "NOVITA_API_KEY": "sk_x",
        "NOVITA_API_BASE_URL": "http://127.0.0.1:1",
        "WEBHOOK_SIGNING_KEY": "the same for every process of a test",
        "ALLOW_PRIVATE_WEBHOOKS": "loopback",
        "LOG_FORMAT": "json",
    }
    async with pilotlight("worker", env=env) as worker:
        await worker.says("worker.ready")
        yield worker


async def rows(database: Database, query: str) -> list[Any]:
    return await database.raw.fetch(query)


async def test_kill_9_while_messages_are_on_their_way_loses_none(url: str, database: Database, receiver: Receiver):
    in_flight = 0

    async def slowly(_request: web.Request) -> web.StreamResponse:
        nonlocal in_flight
        in_flight += 1
        try:
            await asyncio.sleep(0.3)
        finally:
            in_flight -= 1
        return web.Response(status=204)

    receiver.answers = [slowly] * 10_000
    await tell(database, receiver.url)
    for deaths in range(1, 4):
        async with a_worker(url) as worker:
            await until(lambda: in_flight >= 3, within=60)
            assert worker.process.returncode is None, deaths
            worker.process.kill()  # the requests that it has sent are not answered for any more
            await worker.process.wait()
        await until(lambda: in_flight == 0)

    receiver.answers = []
    async with a_worker(url):

        async def all_arrived() -> bool:
            arrived = await rows(database, "SELECT FROM delivery WHERE status = 'DELIVERED'")
            return len(arrived) == 2 * INSTANCES * len(STORY)  # of the instances' own webhooks, and of the project's

        await until(all_arrived, within=90)

    written = await rows(database, "SELECT id, project_webhook_id FROM delivery")
    webhooks = {f"msg_{row['id'].hex}": row["project_webhook_id"] for row in written}
    assert len(webhooks) == 2 * INSTANCES * len(STORY)
    assert {each.id for each in receiver.got} == set(webhooks)
    bodies: dict[str, set[bytes]] = defaultdict(set)
    firsts: dict[tuple[UUID | None, str], list[str]] = defaultdict(list)
    for got in receiver.got:
        if got.id not in bodies:
            data = got.message["data"]
            firsts[webhooks[got.id], data["instanceId"]].append(data["status"])
        bodies[got.id].add(got.body)
    assert all(len(each) == 1 for each in bodies.values())
    assert len(firsts) == 2 * INSTANCES
    assert all(statuses == list(STORY) for statuses in firsts.values())
    # A worker killed while it waited for a response has left its attempt without an end, and all are there.
    lost = await rows(database, "SELECT FROM delivery_attempt WHERE finished_at IS NULL")
    recorded = await rows(database, "SELECT FROM delivery_attempt")
    assert len(lost) >= 3
    assert len(recorded) >= len(receiver.got)
