"""The primary is killed under load, repeatedly, and nothing that was accepted is lost, duplicated or reordered.

    python -m tests.chaos.failover                      12 failovers
    python -m tests.chaos.failover --seed 7 --failovers 30

Three PostgreSQL servers under Patroni with synchronous replication, etcd, haproxy; two APIs and two workers, one of
each by haproxy and one by the list of servers; a simulator of the provider; callers that create, and subscribers.
"Writing again" is the longest while in which no create was accepted, from the fault until every server was back.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp
import asyncpg

from server.auth.tokens import create_token, new_secret
from server.db.database import Database
from server.db.migrate import upgrade
from server.db.outages import DATABASE_ERRORS
from server.enums import Role
from tests.ha.patroni import Cluster, Node, cluster, why_not
from tests.ha.resuming_subscriber import ResumingSubscriber
from tests.support.cursors import head_cursor
from tests.support.processes import control, free_port, pilotlight
from tests.support.waiting import until

SETTINGS = {
    "NOVITA_API_KEY": "sk_chaos",
    "DATABASE_TIMEOUT": "5s",
    "JOB_LEASE": "4s",
    "CREATE_GRACE": "5s",
    "REQUEST_TIMEOUT": "3s",
    "RECONCILE_INTERVAL": "20s",
    "LOG_LEVEL": "warning",
    "LOG_FORMAT": "json",
}
CREATE = """
mutation ($name: String!) {
  createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx", idempotencyKey: $name,
                         billing: ON_DEMAND, ports: [{port: 80}]}) {
    instance { id } errors { code }
  }
}
"""
SETTLE_SECONDS = 180.0
ACTIVITY = """
    SELECT pg_is_in_recovery() AS is_standby, current_setting('synchronous_standby_names') AS waits_for,
           application_name, state, wait_event, left(query, 60) AS query, count(*) AS many
    FROM pg_stat_activity WHERE datname = 'pilotlight' GROUP BY 1, 2, 3, 4, 5, 6
"""


@dataclass
class Plan:
    seed: int = 1
    failovers: int = 12
    callers: int = 3
    subscribers: int = 8
    pause: float = 0.4  # of each caller between two creates
    nodes: int = 3
    pairs: int = 2  # of an API and a worker; the first by the list of servers, the second by haproxy
    comes_back: bool = True  # the server that failed, before the next one does
    kinds: tuple[str, ...] = ("machine dies", "machine dies", "Patroni hangs", "PostgreSQL dies")


@dataclass
class Report:
    counts: Counter[str]
    checks: dict[str, int]
    back_after: list[float]
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_well(self) -> bool:
        return not any(self.checks.values()) and not self.problems

    def lines(self) -> list[str]:
        counts = [f"  {name:46} {count:>8,}" for name, count in self.counts.items()]
        judged = [f"  {name:46} {count:>8,}  {'pass' if not count else 'FAIL'}" for name, count in self.checks.items()]
        ordered = sorted(self.back_after)
        p50 = statistics.median(ordered) if ordered else 0.0
        times = f"  {'time to writing again, p50 / max':46} {p50:>5.1f} s / {max(ordered, default=0.0):.1f} s"
        return [*counts, times, "", *judged, *self.problems]


async def chaos(plan: Plan) -> Report:
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(cluster(nodes=plan.nodes))
        await upgrade(made.url())
        return await Run(plan, made, stack).go()


class Run:
    def __init__(self, plan: Plan, made: Cluster, stack: AsyncExitStack) -> None:
        self._plan, self._cluster, self._stack = plan, made, stack
        self._random = random.Random(plan.seed)
        self._counts: Counter[str] = Counter()
        self._token = new_secret()
        self._accepted: dict[str, str] = {}
        self._answers: list[tuple[float, float]] = []  # when each accepted create was sent and answered
        self._back_after: list[float] = []
        self._is_over = asyncio.Event()
        self._urls: list[str] = []
        self._simulator = ""
        self._last_error = ""
        self._processes: dict[str, Any] = {}

    async def go(self) -> Report:
        database = Database(self._cluster.url(), pool_size=4)
        self._stack.push_async_callback(database.close)
        async with database.write() as session:
            await create_token(session, project="chaos", name="chaos", role=Role.OPERATOR, secret=self._token)
        self._processes = await self._start()
        start = await head_cursor(database)
        subscribers = [ResumingSubscriber(start) for _ in range(self._plan.subscribers)]
        async with asyncio.TaskGroup() as tasks:
            watching = [
                tasks.create_task(each.follow(self._urls, self._token, self._counts, self._random))
                for each in subscribers
            ]
            calling = [tasks.create_task(self._call(number)) for number in range(self._plan.callers)]
            await self._break_things()
            self._is_over.set()
            await asyncio.gather(*calling)
            settled = await self._settle()
            log = await self._log(subscribers)
            for task in watching:
                task.cancel()
        ended = [name for name, each in self._processes.items() if each.process.returncode is not None]
        problems = [f"  {name} ended by itself" for name in ended]
        return await self._judge(subscribers, log, settled, problems)

    async def _start(self) -> dict[str, Any]:
        port = free_port()
        self._simulator = f"http://127.0.0.1:{port}"
        enter = self._stack.enter_async_context
        # Enough stock for any number of failovers: nothing is deleted.
        simulator = ("-m", "server.simulator", "--port", str(port), "--stock-factor", "1000")
        found: dict[str, Any] = {"simulator": await enter(pilotlight(*simulator, command=(sys.executable,)))}
        await until(lambda: "http://" in (found["simulator"].folder / "stdout").read_text())
        await control(self._simulator, "speed", {"speed": 50})
        ways = (self._cluster.url(), self._cluster.front_url())
        for number, url in enumerate(ways[: self._plan.pairs], start=1):
            settings = {**SETTINGS, "DATABASE_URL": url, "NOVITA_API_BASE_URL": self._simulator}
            at = free_port()
            found[f"API {number}"] = await enter(pilotlight("serve", "--port", str(at), env=settings))
            found[f"worker {number}"] = await enter(pilotlight("worker", env=settings))
            self._urls.append(f"http://127.0.0.1:{at}/graphql")
        for url in self._urls:
            await _answers(url.replace("/graphql", "/readyz"))
        return found

    async def _break_things(self) -> None:
        """A quiet while, a fault, and on once every server is there again."""
        for number in range(self._plan.failovers):
            await asyncio.sleep(self._random.uniform(1, 4))
            primary = await self._cluster.has_primary()
            kind = self._plan.kinds[0] if number == 0 else self._random.choice(self._plan.kinds)
            began = time.monotonic()
            after = await self._fail(kind, primary)
            self._counts[kind] += 1
            self._counts["failovers: another server promoted"] += after is not primary
            await self._writes_since(time.monotonic())
            if self._plan.comes_back:
                await self._bring_back(primary)
            gap = self._longest_gap(began)
            self._back_after.append(gap)
            _say(f"  {number + 1:3} {kind:16} {primary.name} -> {after.name}, writing again after {gap:.1f} s")

    async def _bring_back(self, node: Node) -> None:
        node.thaw()
        if node.process is None:
            await self._cluster.start(node)
        await self._cluster.is_whole()

    async def _fail(self, kind: str, primary: Node) -> Node:
        if kind == "machine dies":
            primary.kill()
        elif kind == "Patroni hangs":
            primary.freeze()
        else:
            primary.kill_postgres()
            await asyncio.sleep(1)
            return await self._cluster.has_primary()  # Patroni starts it again, or another server takes over
        return await self._cluster.has_primary(other_than=primary)

    async def _writes_since(self, since: float) -> None:
        """Until a create was accepted that was asked for after that."""
        deadline = time.monotonic() + 120
        while not any(sent >= since for sent, _ in self._answers[-20:]):
            if time.monotonic() > deadline:
                raise AssertionError(f"no create was accepted within two minutes\n{await self._state()}")
            await asyncio.sleep(0.05)

    async def _state(self) -> str:
        """For debugging: the last log lines of the servers and the processes."""
        lines = [f"last error: {self._last_error}", f"so far: {dict(self._counts)}"]
        for node in self._cluster.nodes:
            lines.append(node.last_words())
            with suppress(*DATABASE_ERRORS):
                connection = await asyncpg.connect(self._cluster.url_of(node), timeout=5)
                try:
                    lines += [f"{node.name}: {dict(row)}" for row in await connection.fetch(ACTIVITY)]
                finally:
                    connection.terminate()
        lines += [f"{name}: {each.said[-1500:]}" for name, each in self._processes.items()]
        return "\n".join(lines)

    def _longest_gap(self, since: float) -> float:
        times = [since, *sorted(answered for _, answered in self._answers if answered >= since)]
        return max(after - before for before, after in pairwise(times))

    async def _call(self, number: int) -> None:
        """Ask again with the same key until there is an answer: so it is known what was accepted."""
        many = 0
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=7)) as http:
            while not self._is_over.is_set():
                many += 1
                await self._create(http, f"c{number}-{many}")
                await asyncio.sleep(self._plan.pause)

    async def _create(self, http: aiohttp.ClientSession, name: str) -> None:
        body = {"query": CREATE, "variables": {"name": name}}
        headers = {"authorization": f"Bearer {self._token}"}
        while True:
            sent = time.monotonic()
            answer: dict[str, Any] = {}
            try:
                async with http.post(self._random.choice(self._urls), json=body, headers=headers) as response:
                    answer = await response.json(content_type=None)
                    self._last_error = str(answer.get("errors", self._last_error))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                self._last_error = repr(error)
            payload = (answer.get("data") or {}).get("createInstance")
            if payload is not None and payload["instance"] is not None:
                self._accepted[name] = payload["instance"]["id"]
                self._answers.append((sent, time.monotonic()))
                return
            if payload is not None:
                self._counts.update(f"refused {error['code']}" for error in payload["errors"])
                return
            self._counts["asked again"] += 1
            await asyncio.sleep(0.1)

    async def _settle(self) -> bool:
        deadline = time.monotonic() + SETTLE_SECONDS
        open_ones = "SELECT (SELECT count(*) FROM operation WHERE finished_at IS NULL) + (SELECT count(*) FROM outbox)"
        while time.monotonic() < deadline:
            if [row[0] for row in await self._ask(open_ones)] == [0]:
                return True
            await asyncio.sleep(0.5)
        return False

    async def _log(self, subscribers: Sequence[ResumingSubscriber]) -> list[str]:
        """The log once it is quiet and every subscriber has had the time to read it."""
        deadline = time.monotonic() + 60
        while True:
            rows = await self._ask("SELECT id FROM event WHERE instance_id IS NOT NULL ORDER BY position")
            log = [f"evt_{row['id'].hex}" for row in rows]
            if all(each.seen == log for each in subscribers) or time.monotonic() > deadline:
                return log
            await asyncio.sleep(0.5)

    async def _ask(self, statement: str) -> list[Any]:
        while True:
            with suppress(*DATABASE_ERRORS):
                primary = await self._cluster.has_primary()
                connection = await asyncpg.connect(self._cluster.url_of(primary), timeout=5)
                try:
                    return await connection.fetch(statement)
                finally:
                    await connection.close()
            await asyncio.sleep(0.2)

    async def _judge(
        self, subscribers: Sequence[ResumingSubscriber], log: list[str], settled: bool, problems: list[str]
    ) -> Report:
        ids = {row["id"].hex for row in await self._ask("SELECT id FROM instance")}
        [span] = await self._ask("SELECT count(*) AS many, coalesce(max(position), 0) AS last FROM event")
        owners = {
            row["marker"]: row["instance_id"] for row in await self._ask("SELECT instance_id, marker FROM attempt")
        }
        versions = await self._ask(
            "SELECT instance_id, (data->'instance'->>'version')::int AS version FROM event"
            " WHERE data->'instance'->>'version' IS NOT NULL ORDER BY instance_id, position"
        )
        made = (await control(self._simulator, "state"))["madeByName"]
        machines: Counter[Any] = Counter()
        for name, many in made.items():
            machines[owners.get(name.rsplit("-", 1)[-1], name)] += many
        place = {id: number for number, id in enumerate(log)}
        orders = [[place.get(id, -1) for id in each.seen] for each in subscribers]
        counts = Counter({"creates accepted": len(self._accepted), "events in the log": span["many"]})
        counts.update(self._counts)
        checks = {
            "accepted and lost": sum(id.removeprefix("inst_") not in ids for id in self._accepted.values()),
            "instances with two machines": sum(many > 1 for many in machines.values()),
            "machines without an instance": sum(name not in owners.values() for name in machines),
            "positions missing": span["last"] - span["many"],
            "changes of an instance out of order": sum(
                a["version"] > b["version"] for a, b in pairwise(versions) if a["instance_id"] == b["instance_id"]
            ),
            "events a subscriber missed": sum(len(place.keys() - set(each.seen)) for each in subscribers),
            "events a subscriber got twice": sum(len(each.seen) - len(set(each.seen)) for each in subscribers),
            "events a subscriber got out of order": sum(a > b for order in orders for a, b in pairwise(order)),
            "events a subscriber got that are not in the log": sum(order.count(-1) for order in orders),
            "cursors that expired": self._counts["subscribers that got CURSOR_EXPIRED"],
            "cursors that were refused": self._counts["subscribers that got INVALID_CURSOR"],
            "operations that did not end": 0 if settled else 1,
        }
        return Report(counts, checks, self._back_after, problems)


async def _answers(url: str) -> None:
    deadline = time.monotonic() + 60
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as http:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            assert time.monotonic() < deadline, f"{url} does not answer"
            await asyncio.sleep(0.1)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--failovers", type=int, default=Plan.failovers)
    parser.add_argument("--kinds", nargs="+", default=Plan.kinds, choices=sorted(set(Plan.kinds)))
    given = parser.parse_args()
    reason = why_not()
    if reason is not None:
        _say(reason)
        return 2
    _say(f"seed {given.seed}")
    report = asyncio.run(chaos(Plan(seed=given.seed, failovers=given.failovers, kinds=tuple(given.kinds))))
    _say("\n".join(["", *report.lines()]))
    return 0 if report.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
