"""Creates while API and workers are killed and the provider loses answers: at most one machine for each accepted one.

    python -m bench.chaos_create [--kills 100] [--seed 1]

A real simulator process with faults (answer lost, 500 after the create, no answer after the create, lists that lag by
five seconds), one API and two workers over one durable database. One of the three is killed -9 at random moments and
started again, while callers retry with idempotency keys. Then everything is left to come to its end and counted.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from server.auth.tokens import create_token, new_secret
from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.enums import Role
from tests.support.processes import free_port

SETTINGS = {
    "NOVITA_API_KEY": "sk_chaos",
    "NOVITA_RATE_LIMIT": "0",
    "BREAKER_THRESHOLD": "1000",  # the faults are meant to reach the create, not to be kept away from it
    "REQUEST_TIMEOUT": "2s",
    "REQUEST_DEADLINE": "2s",
    "CREATE_GRACE": "8s",  # longer than the list lags
    "JOB_LEASE": "2s",
    "RECONCILE_INTERVAL": "5s",
    "HEALTH_CHECK_DELAY": "200ms",
    "INSTANCE_POLL_INTERVAL": "1s",
    "LOG_LEVEL": "error",
}
CREATE = "POST /gpu/instance/create"
FAULTS = [
    {"kind": "lostAnswer", "routes": [CREATE], "probability": 0.15},
    {"kind": "errorAfter", "routes": [CREATE], "probability": 0.15},
    {"kind": "hangAfter", "routes": [CREATE], "probability": 0.1},
    {"kind": "error", "routes": [CREATE], "probability": 0.1},
    {"kind": "listLag", "seconds": 5},
]
MUTATION = """
mutation ($name: String!) {
  createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx", idempotencyKey: $name,
                         billing: ON_DEMAND, ports: [{port: 80}]}) {
    instance { id } errors { code }
  }
}
"""
SETTLE_SECONDS = 240


@dataclass
class Program:
    """A process that is started again whenever it was killed."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *self.arguments, env=self.environment, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


@dataclass
class Tally:
    accepted: dict[str, str] = field(default_factory=dict[str, str])  # name -> our id
    refused: Counter[str] = field(default_factory=Counter[str])
    retried: int = 0


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    chance = random.Random(given.seed)
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-chaos-")))
        postgres = await stack.enter_async_context(EmbeddedPostgres(home / "home"))
        await upgrade(postgres.url)
        token = await _token(postgres.url)
        api_port, simulator_port = free_port(), free_port()
        simulator_url = f"http://127.0.0.1:{simulator_port}"
        environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "PYTHONPATH")},
            **SETTINGS,
            "DATABASE_URL": postgres.url,
            "NOVITA_API_BASE_URL": simulator_url,
        }
        cli = ("-c", "from server.cli.main import main; main()")
        simulator = Program(
            ("-m", "server.simulator", "--port", str(simulator_port), "--speed", "20", "--stock-factor", "1000",
             "--state-file", str(home / "state")),
            environment, home / "simulator.log",
        )  # fmt: skip
        victims = {
            "api": Program((*cli, "serve", "--port", str(api_port)), environment, home / "api.log"),
            "worker 1": Program((*cli, "worker"), environment, home / "worker1.log"),
            "worker 2": Program((*cli, "worker"), environment, home / "worker2.log"),
        }
        for program in (simulator, *victims.values()):
            await program.start()
            stack.push_async_callback(program.kill)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        await _answers(http, f"{simulator_url}/control/state")
        await _answers(http, f"http://127.0.0.1:{api_port}/healthz")
        await _control(http, simulator_url, "faults", {"faults": FAULTS})

        tally, over = Tally(), asyncio.Event()
        url = f"http://127.0.0.1:{api_port}/graphql"
        callers = [asyncio.create_task(_call(http, url, token, f"c{n}", tally, over)) for n in range(3)]
        kills: Counter[str] = Counter()
        for _ in range(given.kills):
            await asyncio.sleep(chance.uniform(0.05, 1.2))
            name = chance.choice(list(victims))
            await victims[name].kill()
            await victims[name].start()
            kills[name] += 1
            if name == "api":
                await _answers(http, f"http://127.0.0.1:{api_port}/healthz")  # else callers would hardly get a word in
        over.set()
        await asyncio.gather(*callers)
        await _control(http, simulator_url, "faults", {"faults": []})
        settled = await _settle(postgres.url)
        await asyncio.sleep(15)  # two reconciliations, and the lag of the list
        state = await _control(http, simulator_url, "state")
        machines = await _machines(http, simulator_url)
        return await _report(postgres.url, tally, kills, state, machines, settled, time.monotonic() - began)


async def _call(http: aiohttp.ClientSession, url: str, token: str, who: str, tally: Tally, over: asyncio.Event) -> None:
    """Ask again with the same key until there is an answer: what was accepted is known to us whatever was killed."""
    number = 0
    while not over.is_set():
        number += 1
        name = f"{who}-{number}"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                async with http.post(
                    url,
                    json={"query": MUTATION, "variables": {"name": name}},
                    headers={"authorization": f"Bearer {token}"},
                    timeout=aiohttp.ClientTimeout(total=10),
                ) as response:
                    body: dict[str, Any] = await response.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                tally.retried += 1
                await asyncio.sleep(0.1)
                continue
            payload = (body.get("data") or {}).get("createInstance")
            if payload is None:
                tally.retried += 1
                await asyncio.sleep(0.1)
            elif payload["instance"] is not None:
                tally.accepted[name] = payload["instance"]["id"]
                break
            else:
                tally.refused.update(error["code"] for error in payload["errors"])
                break
        await asyncio.sleep(0.5)


async def _settle(url: str) -> bool:
    """Wait until no operation is open; False if that never happens."""
    connection = await asyncpg.connect(url)
    try:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            if not await connection.fetchval("SELECT count(*) FROM operation WHERE finished_at IS NULL"):
                return True
            await asyncio.sleep(0.5)
        return False
    finally:
        await connection.close()


async def _report(
    url: str,
    tally: Tally,
    kills: Counter[str],
    state: dict[str, Any],
    machines: dict[str, str],
    settled: bool,
    seconds: float,
) -> int:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT instance_id, marker FROM attempt WHERE marker IS NOT NULL")
        ids = {row["id"].hex for row in await connection.fetch("SELECT id FROM instance")}
        tied = {row["novita_id"] for row in await connection.fetch("SELECT novita_id FROM instance")}
        endings = await connection.fetch(
            "SELECT kind, status, error_code, count(*) AS many FROM operation GROUP BY 1, 2, 3"
        )
        attempts = await connection.fetch("SELECT status, count(*) AS many FROM attempt GROUP BY 1 ORDER BY 1")
    finally:
        await connection.close()
    owner = {row["marker"]: row["instance_id"] for row in rows}
    per_instance: Counter[Any] = Counter()
    strangers = 0
    for name, many in state["madeByName"].items():
        instance_id = owner.get(name.rsplit("-", 1)[-1])
        strangers += many if instance_id is None else 0
        per_instance[instance_id] += many
    doubled = sum(1 for instance_id, many in per_instance.items() if instance_id is not None and many > 1)
    lost = [name for name, id in tally.accepted.items() if id.removeprefix("inst_") not in ids]
    orphans = [id for id in machines if id not in tied]

    ended = ", ".join(f"{name} {many}" for name, many in sorted(kills.items()))
    tried = ", ".join(f"{row['status']} {row['many']}" for row in attempts)
    print(f"seconds                      {seconds:.0f}")
    print(f"kill -9                      {kills.total()} ({ended})")
    print(f"accepted creates             {len(tally.accepted)}, asked again {tally.retried} times")
    print(f"refused                      {dict(tally.refused)}")
    print(f"machines ever made           {state['instancesMade']}")
    print(f"attempts                     {tried}")
    for row in endings:
        print(f"operations                   {row['kind']} {row['status']} {row['error_code'] or ''} {row['many']}")
    checks = {
        "accepted and then lost": len(lost),
        "instances with two machines": doubled,
        "machines without an instance": strangers,
        "orphans after reconcile": len(orphans),
        "operations that did not end": 0 if settled else 1,
    }
    for name, count in checks.items():
        print(f"{name:28} {count}  {'pass' if count == 0 else 'FAIL'}")
    return 1 if any(checks.values()) else 0


async def _token(url: str) -> str:
    database, secret = Database(url), new_secret()
    async with database.write() as session:
        await create_token(session, project="chaos", name="chaos", role=Role.OPERATOR, secret=secret)
    await database.close()
    return secret


async def _answers(http: aiohttp.ClientSession, url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(aiohttp.ClientError):
            async with http.get(url) as response:
                if response.status == 200:
                    return
        if time.monotonic() > deadline:
            raise SystemExit(f"{url} does not answer")
        await asyncio.sleep(0.1)


async def _control(
    http: aiohttp.ClientSession, url: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    async with http.request("GET" if body is None else "POST", f"{url}/control/{path}", json=body) as response:
        response.raise_for_status()
        return await response.json()


async def _machines(http: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """Every machine that the provider has now, by id."""
    found: dict[str, str] = {}
    page = 1
    while True:
        async with http.get(
            f"{url}/gpu-instance/openapi/v1/gpu/instances",
            params={"pageSize": "100", "pageNum": str(page)},
            headers={"authorization": "Bearer sk_chaos"},
        ) as response:
            items = (await response.json())["instances"]
        found |= {
            item["id"]: item["name"] for item in items if item["status"] not in ("removed", "removing", "toRemove")
        }
        if len(items) < 100:
            return found
        page += 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
