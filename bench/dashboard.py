"""The dashboard in a real browser, with thousands of instances of which hundreds change every second.

    python -m bench.dashboard [--instances 5000] [--changes 200] [--seconds 300]

One API process over a database of its own. Instances go through the statuses of a life; every change is a row, an event
in the log and a message to the page, written many to a transaction, so that making them costs less than watching them.
Meanwhile a script scrolls, sorts and filters the page. Printed: long tasks, memory after a collection, and how soon
the page showed what it was asked for.
Exits with 1 when a task took longer than 200 ms or memory has grown by more than a fifth.
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
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select

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
LONGEST_TASK = 200.0  # ms
MOST_GROWTH = 1.2
WARM_UP = 3  # samples: the page has just been loaded


async def main(instances: int, changes: int, seconds: float) -> int:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        running = await stack.enter_async_context(EmbeddedPostgres(home / "db", durable=False))
        await upgrade(running.url)
        database = Database(running.url)
        stack.push_async_callback(database.close)
        token = new_secret()
        fleet = await _fill(database, token, instances)
        base = await stack.enter_async_context(_serving(running.url, home))
        made = Changes(database, fleet)
        changing = asyncio.create_task(made.go_on(changes))
        try:
            report = await _watch(base, token, seconds, instances)
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
    return _judge(report, made)


async def _fill(database: Database, token: str, count: int) -> list[UUID]:
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
                ports=[], labels={"team": chance.choice(("a", "b"))}, endpoints=[], novita_id=f"n{number}",
            )
            for number in range(count)
        ]  # fmt: skip
        session.add_all(rows)
        await session.flush()
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
                await session.execute(insert(Outbox), events)
                notify_after_commit(session, "outbox")
            self.done += len(chosen)
            await asyncio.sleep(max(0.0, due - time.monotonic()))


class _serving:
    """One API process without a worker, so that no job changes the generated instances."""

    def __init__(self, database_url: str, home: Path) -> None:
        self._url, self._home = database_url, home

    async def __aenter__(self) -> str:
        ready = self._home / "ready.json"
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "DATABASE_URL": self._url,
            "NOVITA_API_KEY": "sk_bench",
            "NOVITA_API_BASE_URL": "http://127.0.0.1:9",
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


async def _watch(base: str, token: str, seconds: float, instances: int) -> dict[str, Any]:
    npm = await find_npm()
    process = await asyncio.create_subprocess_exec(
        npm.node, "perf/page.mjs", base, token, str(seconds), str(instances),
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
    third = max(1, len(settled) // 3)
    early = statistics.median(sample["heapMb"] for sample in settled[:third])
    late = statistics.median(sample["heapMb"] for sample in settled[-third:])
    longest = max(tasks, default=0.0)
    print(f"changes made a second            {made.per_second:8.0f}")
    print(f"messages received a second       {statistics.median(sample['perSecond'] for sample in samples):8.0f}")
    print(f"first rows / all rows            {report['firstRows']:8.0f} / {report['allRows']} ms")
    print(f"tasks over 50 ms                 {len(tasks):8}")
    print(f"longest task                     {longest:8.0f} ms   (loading: {report['loadingLongestTask']:.0f} ms)")
    print(f"memory, first third / last third {early:8.1f} / {late:.1f} MB, {late / early:.2f}")
    print(f"DOM nodes, least / most          {min(s['nodes'] for s in settled):8} / {max(s['nodes'] for s in settled)}")
    for name in ("scroll", "sort", "filter"):
        took = [answer["took"] for answer in report["answers"] if answer["name"] == name]
        print(f"{name:<33}{statistics.median(took):8.0f} ms median, {max(took):.0f} ms at most")
    if report["problems"]:
        print(*report["problems"], sep="\n")
    is_well = longest <= LONGEST_TASK and late / early <= MOST_GROWTH and not report["problems"]
    print("well" if is_well else "NOT WELL")
    return 0 if is_well else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=5000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.instances, given.changes, given.seconds)))
