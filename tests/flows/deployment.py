"""A deployment over one database: an API, a worker, a simulator, a webhook receiver and a trace collector."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from server.auth.tokens import DEFAULT_PROJECT, create_token, new_secret
from server.db.database import Database
from server.enums import Role
from tests.support.otel_collector import Collector, collector
from tests.support.processes import Pilotlight, pilotlight
from tests.support.receiver import Receiver, started
from tests.support.waiting import until

API_KEY = "sk_the_key_of_the_provider"
SIGNING_KEY = "the key that all webhooks are signed with"
SECRET_ENV = "a-password-in-an-environment"
CREATE = """
    mutation Create($name: String!, $url: String, $secret: String!) {
      createInstance(input: {
        name: $name, productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}],
        env: [{key: "PASSWORD", value: $secret}], webhookUrl: $url
      }) {
        instance { id }
        operation { id }
        errors { code message }
      }
    }
"""


@dataclass
class Deployment:
    graphql_url: str
    token: str
    database_url: str
    api: Pilotlight
    worker: Pilotlight
    receiver: Receiver
    collector: Collector
    simulator_url: str

    @property
    def secrets(self) -> list[str]:
        """What must never be seen outside of where it belongs."""
        password = re.findall(r"//[^:/]+:([^@]+)@", self.database_url)
        return [self.token, API_KEY, SIGNING_KEY, SECRET_ENV, *password]

    async def create(self, name: str, **headers: str) -> "Created":
        """Create an instance with a webhook URL."""
        body = {"query": CREATE, "variables": {"name": name, "url": self.receiver.url, "secret": SECRET_ENV}}
        headers["authorization"] = f"Bearer {self.token}"
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(self.graphql_url, json=body) as response,
        ):
            answer = (await response.json())["data"]["createInstance"]
            assert answer["errors"] == []
            return Created(answer["instance"]["id"], answer["operation"]["id"], response.headers["x-request-id"])

    async def until_delivered(self, created: "Created") -> None:
        """Wait until the receiver has got the end of the operation."""
        await until(lambda: "operation.finished" in self.event_types(created), within=90)

    def event_types(self, created: "Created") -> list[str]:
        return [each.type for each in self.receiver.got if each.message["data"]["instanceId"] == created.instance_id]


@dataclass(frozen=True)
class Created:
    instance_id: str
    operation_id: str
    request_id: str


@asynccontextmanager
async def deployment(url: str, folder: Path, **settings: str) -> AsyncIterator[Deployment]:
    """On a migrated database. `settings` go to the API and the worker, on top of what makes them quick."""
    async with AsyncExitStack() as stack:
        receiver = Receiver()
        runner = await started(receiver)
        stack.push_async_callback(runner.cleanup)
        collecting = await stack.enter_async_context(collector())
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        await simulator.says("http://")
        simulator_url = next(word for word in simulator.said.split() if word.startswith("http://"))
        env = {
            "DATABASE_URL": url,
            "NOVITA_API_KEY": API_KEY,
            "NOVITA_API_BASE_URL": simulator_url,
            "WEBHOOK_SIGNING_KEY": SIGNING_KEY,
            "ALLOW_PRIVATE_WEBHOOKS": "loopback",
            "WORKER_PORT": "0",
            "LOG_FORMAT": "json",
            "LOG_LEVEL": "debug",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collecting.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            **settings,
        }
        token = await new_token(url)
        file = folder / "api.json"
        serve = ("serve", "--port", "0", "--ready-file", str(file))
        api = await stack.enter_async_context(pilotlight(*serve, env=env))
        worker = await stack.enter_async_context(pilotlight("worker", env=env))
        await until(lambda: file.exists() or api.process.returncode is not None, within=60)
        assert file.exists(), api.said
        await worker.says("worker.ready")
        graphql_url = json.loads(file.read_text())["graphqlUrl"]
        yield Deployment(graphql_url, token, url, api, worker, receiver, collecting, simulator_url)


async def new_token(url: str, role: Role = Role.OPERATOR, *, project: str = DEFAULT_PROJECT) -> str:
    """A token like one of `pilotlight token create`, without a process for it."""
    secret = new_secret()
    database = Database(url, pool_size=1)
    try:
        async with database.write() as session:
            await create_token(session, project=project, name="a test's", role=role, secret=secret)
    finally:
        await database.close()
    return secret


def lines_of(process: Pilotlight, **wanted: object) -> list[dict[str, Any]]:
    """Every complete line of its log, parsed; those with these values."""
    lines = [json.loads(line) for line in process.said.splitlines(keepends=True) if line.endswith("\n")]
    return with_values(lines, **wanted)


def with_values(lines: list[dict[str, Any]], **wanted: object) -> list[dict[str, Any]]:
    return [line for line in lines if wanted.items() <= line.items()]
