"""The dashboard in a real browser, with thousands of instances of which hundreds change every second.

    python -m bench.dashboard [--instances 5000] [--changes 200] [--seconds 300]

One API process over a database of its own. Instances go through the statuses of a life; every change is a row, an event
in the log and a message to the page, written many to a transaction, so that making them costs less than watching them.
Entries of the ledger begin and end with them. Meanwhile a script scrolls, sorts and filters the page; two more windows
show charts: what is spent, and the usage of an instance whose machine the simulator has. Printed: long tasks and memory
after a collection in all windows, and how soon the page showed what it was asked for.
Exits with 1 when a task in any window took longer than 150 ms or its memory has grown by more than a fifth.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
from sqlalchemy import insert, select, text

from schema import ids
from server.auth.tokens import create_token, new_secret
from server.cli.build_pages import find_npm
from server.clock import new_id, now
from server.db.database import Database, notify_after_commit
from server.db.embedded.server import EmbeddedPostgres
from server.db.migrate import upgrade
from server.db.tables import Instance, Token
from server.db.tables.event import Outbox
from server.enums import InstanceStatus, Role
from server.instances import transitions
from server.instances.events import snapshot_of
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator

WEB = Path(__file__).parents[1] / "web"
PRODUCTS = ("RTX 4090 24GB", "L40S 48GB", "A100 SXM4 80GB", "H100 SXM 80GB")
REGIONS = ("AS-SGP-02", "CN-HK-01", "AS-IN-01", "US-CA-06")
S = InstanceStatus
NEXT = {
    S.READY: S.STOPPING,
    S.STOPPING: S.EXITED,
    S.EXITED: S.STARTING,
    S.STARTING: S.RUNNING,
    S.RUNNING: S.HEALTH_CHECKING,
    S.HEALTH_CHECKING: S.READY,
}
BATCH = 0.1  # seconds between two commits
LONGEST_TASK = 150.0  # ms
MOST_GROWTH = 1.2
WARM_UP = 3  # samples: the page has just been loaded
DAYS = 25  # of entries in the ledger
SPEED = 200  # simulated seconds per second, so that the machine with the charts runs soon
MACHINE = {
    "name": "with-charts",
    "productId": "4090.16c62g",
    "clusterId": "us-ca-6",
    "gpuNum": 2,
    "rootfsSize": 60,
    "imageUrl": "nginx",
    "kind": "gpu",
}

# Of every tenth instance some hours on each day; every instance that is paid for has an open entry.
ENTRIES = text("""
    INSERT INTO cost_entry (project_id, instance_id, machine, labels, price_e5, product_name, region, run_began_at,
                            began_at, ended_at, amount_micros)
    SELECT project_id, id, novita_id, labels, price_per_hour_e5, product_name, region, began, began,
           began + hours * interval '1 hour', price_per_hour_e5 * 10 * hours
    FROM (SELECT instance.*, date_trunc('day', now(), 'UTC') - day * interval '24 hours' AS began,
                 1 + (day * 7 + ascii(right(name, 1))) % 9 AS hours
          FROM instance CROSS JOIN generate_series(1, :days) AS day WHERE right(name, 1) = '0') AS ran
""")
OPEN = text("""
    INSERT INTO cost_entry (project_id, instance_id, machine, labels, price_e5, product_name, region, run_began_at,
                            began_at)
    SELECT project_id, id, novita_id, labels, price_per_hour_e5, product_name, region, now(), now() FROM instance
    WHERE id = ANY(:ids)
""")
CLOSE = text("""
    UPDATE cost_entry SET ended_at = now(), amount_micros = price_e5 * extract(epoch FROM now() - began_at) / 360
    WHERE instance_id = ANY(:ids) AND ended_at IS NULL
""")


async def main(instances: int, changes: int, seconds: float) -> int:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        running = await stack.enter_async_context(EmbeddedPostgres(home / "db", durable=False))
        await upgrade(running.url)
        database = Database(running.url)
        stack.push_async_callback(database.close)
        token = new_secret()
        simulator = await stack.enter_async_context(Simulator(SimulatorOptions(speed=SPEED)))
        fleet = await _fill(database, token, instances, await _machine(simulator))
        base = await stack.enter_async_context(_serving(running.url, home, simulator.url))
        made = Changes(database, fleet[1:])  # the first one has the charts, and stays READY
        changing = asyncio.create_task(made.go_on(changes))
        try:
            report = await _watch(base, token, seconds, instances, with_charts=fleet[0])
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
    return _judge(report, made)


async def _machine(simulator: Simulator) -> str:
    """The id of a running machine, with two GPUs that were busy for an hour."""
    headers = {"authorization": f"Bearer {simulator.api_key}"}
    async with aiohttp.ClientSession(f"{simulator.url}/", headers=headers) as http:
        api = "gpu-instance/openapi/v1/gpu/instance"
        async with http.post(f"{api}/create", json=MACHINE) as response:
            id = str((await response.json())["id"])
        async with asyncio.timeout(60):
            while True:
                async with http.get(api, params={"instanceId": id}) as response:
                    if (await response.json())["status"] == "running":
                        break
                await asyncio.sleep(0.1)
        at = time.time()
        for minute in range(-70, 30):
            load = {"gpuPercent": 50 + 40 * (minute % 3 - 1), "from": at + minute * 60, "to": at + minute * 60 + 60}
            async with http.post(f"control/instances/{id}/load", json=load) as response:
                assert response.status == 200, await response.text()
    return id


async def _fill(database: Database, token: str, count: int, machine: str) -> list[UUID]:
    moment = now()
    chance = random.Random(1)
    async with database.write() as session:
        token_id = await create_token(session, project="bench", name="bench", role=Role.OPERATOR, secret=token)
        project_id = (await session.get_one(Token, token_id)).project_id
        rows = [
            Instance(
                id=new_id(), project_id=project_id, name=f"gpu-{number:05}", version=1,
                product_name=chance.choice(PRODUCTS), gpu_count=chance.randint(1, 8), rootfs_size_gb=60, billing="SPOT",
                billing_mode="spot", price_per_hour_e5=chance.randint(10_000, 900_000), image="nginx:1.27",
                region=chance.choice(REGIONS), regions=list(REGIONS), status=S.READY, created_at=moment,
                updated_at=moment, status_since=moment, running_at=moment, ready_at=moment, observed_at=moment,
                ports=[], labels={"team": chance.choice(("a", "b"))}, endpoints=[],
                novita_id=f"n{number}" if number else machine,
            )
            for number in range(count)
        ]  # fmt: skip
        session.add_all(rows)
        await session.flush()
        await session.execute(ENTRIES, {"days": DAYS})
        await session.execute(OPEN, {"ids": [row.id for row in rows]})
        return [row.id for row in rows]


class Changes:
    """Writes status transitions, `--changes` of them per second."""

    def __init__(self, database: Database, fleet: list[UUID]) -> None:
        self._database = database
        self._fleet = fleet
        self._chance = random.Random(2)
        self.done = 0
        self.began = time.monotonic()

    @property
    def per_second(self) -> float:
        return self.done / (time.monotonic() - self.began)

    async def go_on(self, per_second: int) -> None:
        while True:
            due = time.monotonic() + BATCH
            chosen = self._chance.sample(self._fleet, max(1, round(per_second * BATCH)))
            async with self._database.write() as session:
                found = await session.scalars(
                    select(Instance).where(Instance.id.in_(chosen)).order_by(Instance.id).with_for_update()
                )
                events: list[dict[str, Any]] = []
                for row in found:
                    previous, row.status = S(row.status), NEXT[S(row.status)]
                    row.version += 1
                    row.status_since = row.updated_at = now()
                    events.append(
                        {
                            "id": new_id(),
                            "type": transitions.EVENT_OF[S(row.status)].value,
                            "project_id": row.project_id,
                            "instance_id": row.id,
                            "data": {"from": previous, "to": row.status, "instance": snapshot_of(row)},
                        }
                    )
                await session.flush()
                await session.execute(CLOSE, {"ids": _which(events, S.EXITED)})
                await session.execute(OPEN, {"ids": _which(events, S.STARTING)})
                await session.execute(insert(Outbox), events)
                notify_after_commit(session, "outbox")
            self.done += len(chosen)
            await asyncio.sleep(max(0.0, due - time.monotonic()))


def _which(events: Iterable[dict[str, Any]], status: InstanceStatus) -> list[UUID]:
    return [event["instance_id"] for event in events if event["data"]["to"] == status]


class _serving:
    """One API process without a worker, so that no job changes the generated instances."""

    def __init__(self, database_url: str, home: Path, provider_url: str) -> None:
        self._url, self._home, self._provider_url = database_url, home, provider_url

    async def __aenter__(self) -> str:
        ready = self._home / "ready.json"
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "DATABASE_URL": self._url,
            "NOVITA_API_KEY": "sk_bench",
            "NOVITA_API_BASE_URL": self._provider_url,
            "WEBHOOK_SIGNING_KEY": "for-the-bench-only-without-a-receiver",
            "LOG_LEVEL": "error",
        }
        command = str(Path(sys.executable).with_name("pilotlight"))
        self._process = await asyncio.create_subprocess_exec(
            command, "serve", "--port", "0", "--home", str(self._home), "--ready-file", str(ready), env=environment
        )
        async with asyncio.timeout(60):
            while not ready.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.1)
        return str(json.loads(ready.read_text())["graphqlUrl"]).removesuffix("/graphql")

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.wait()


async def _watch(base: str, token: str, seconds: float, instances: int, *, with_charts: UUID) -> dict[str, Any]:
    npm = await find_npm()
    process = await asyncio.create_subprocess_exec(
        npm.node, "perf/page.mjs", base, token, str(seconds), str(instances), ids.format_id(ids.INSTANCE, with_charts),
        cwd=WEB, stdout=asyncio.subprocess.PIPE, preexec_fn=_go_first,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, "the browser's process has failed"
    return dict(json.loads(said))


def _go_first() -> None:
    """The browser stands for another machine: what else runs on this one shall not slow it down."""
    with suppress(PermissionError):
        os.nice(-15)


def _judge(report: dict[str, Any], made: Changes) -> int:
    samples, tasks = report["samples"], report["tasks"]
    settled = samples[WARM_UP:] or samples
    longest = {"fleet": max(tasks, default=0.0)}
    growth = {"fleet": _growth([sample["heapMb"] for sample in settled])}
    for name, chart in report["charts"].items():
        longest[name] = max(chart["tasks"], default=0.0)
        growth[name] = _growth(chart["heapMb"][WARM_UP:] or chart["heapMb"])
    print(f"changes made a second            {made.per_second:8.0f}")
    print(f"messages received a second       {statistics.median(sample['perSecond'] for sample in samples):8.0f}")
    print(f"first rows / all rows            {report['firstRows']:8.0f} / {report['allRows']} ms")
    print(f"tasks over 50 ms                 {len(tasks):8}")
    print(f"longest task                     {max(longest.values()):8.0f} ms   ({_by_window(longest, '.0f')})")
    print(f"longest task while loading       {report['loadingLongestTask']:8.0f} ms")
    for name, (early, late) in growth.items():
        words = f"memory of {name}, first / last third"
        print(f"{words:<38} {early:8.1f} / {late:.1f} MB")
    most = {name: late / early for name, (early, late) in growth.items()}
    print(f"memory, first third / last third, at most ({_by_window(most, '.2f')}), {max(most.values()):.2f}")
    print(f"DOM nodes, least / most          {min(s['nodes'] for s in settled):8} / {max(s['nodes'] for s in settled)}")
    for name in ("scroll", "sort", "filter"):
        took = [answer["took"] for answer in report["answers"] if answer["name"] == name]
        print(f"{name:<33}{statistics.median(took):8.0f} ms median, {max(took):.0f} ms at most")
    if report["problems"]:
        print(*report["problems"], sep="\n")
    is_well = max(longest.values()) <= LONGEST_TASK and max(most.values()) <= MOST_GROWTH and not report["problems"]
    print("well" if is_well else "NOT WELL")
    return 0 if is_well else 1


def _growth(heaps: list[float]) -> tuple[float, float]:
    """The memory in the first and in the last third of the time."""
    third = max(1, len(heaps) // 3)
    return statistics.median(heaps[:third]), statistics.median(heaps[-third:])


def _by_window(figures: dict[str, float], form: str) -> str:
    return ", ".join(f"{name} {figure:{form}}" for name, figure in figures.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=5000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.instances, given.changes, given.seconds)))
