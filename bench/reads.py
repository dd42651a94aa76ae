"""Reads that users send, over HTTP out of PostgreSQL, beside servers that answer the same.

    python -m bench.reads                          all cases
    python -m bench.reads --only dashboard,filter  cases whose names contain one of these words
    python -m bench.reads --seconds 3              longer rounds

The queries are the dashboard's and the examples' own documents and generated ones. Beside Pilotlight, in alternating
rounds at 16 connections: Mercurius with compiled queries on the same PostgreSQL, Starlette with asyncpg and orjson on
it (no GraphQL), and graphql-yoga from memory. Where they answer the same question, their answers must be equal. What
is compared is the processor time that each server takes for a request. Ends with 1 if a promise is not kept.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
import orjson
import psutil
import uvloop

from bench import live
from bench.create import PILOTLIGHT, _line, _ready, _start, _token
from bench.graphql import YOGA, Peer, installed, start_yoga
from bench.reads_client import send_for
from bench.reads_data import REGIONS, ROOT, SELECTION, documents_of, each_of, fill, generated, same
from server.db.database import Database
from server.db.migrate import upgrade
from server.db.notify import Notifier
from tests.ha.streaming import PostgresServer, primary_and_replica

NODE_PACKAGES = *YOGA, "fastify@5.12.8", "mercurius@16.10.1", "pg@8.23.1"
CONNECTIONS = 16
ROUNDS = 2
OURS, REPLICA, MERCURIUS, STARLETTE, YOGA_NAME = "pilotlight", "with a replica", "mercurius", "starlette", "yoga"
PAGE = f"query Page($after: String) {{ instances(first: 50, after: $after) {{ nodes {{ {SELECTION} }} }} }}"
ALL = (
    f"query All($after: String) {{ instances(first: 50, after: $after) {{ nodes {{ {SELECTION} }}"
    " pageInfo { endCursor } } }"
)
FILTERED = (
    "query Filtered($since: DateTime!) {"
    " instances(first: 50, filter: { statuses: [READY, EXITED], createdAfter: $since })"
    f" {{ nodes {{ {SELECTION} }} }} }}"
)
REGION = (
    f"query Region($region: String!) {{ instances(filter: {{ regions: [$region] }}) {{ nodes {{ {SELECTION} }} }} }}"
)
ONE = f"query One($id: ID!) {{ instance(id: $id) {{ {SELECTION} }} }}"
FAN_OUT = (
    "subscription Of{0} {{ instanceEvents {{ id cursor type occurredAt status"
    " s{0}: instanceSnapshot {{ instanceId name status version image }} }} }}"
)


@dataclass(slots=True)
class Case:
    """One question. `bodies` is called for every round; `peers` answer it too."""

    name: str
    bodies: Callable[[], Iterator[bytes]]
    peers: tuple[str, ...] = ()
    cpu: dict[str, float] = field(default_factory=dict[str, float])

    def ratio(self, to: str) -> float:
        return self.cpu[OURS] / self.cpu[to]


@dataclass(slots=True)
class Report:
    lines: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])

    def add(self, what: str, value: float, limit: float, unit: str = "x", *, at_least: bool = False) -> None:
        is_kept = value >= limit if at_least else value <= limit
        word = "at least" if at_least else "at most"
        text = f"{'PASS' if is_kept else 'FAIL'}  {what}: {value:.2f} {unit} ({word} {limit:g})"
        print(text, flush=True)
        self.lines.append((text, is_kept))


async def main(seconds: float, only: list[str]) -> bool:
    folder = installed(*NODE_PACKAGES)
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        primary, replica = await stack.enter_async_context(primary_and_replica())
        await primary.ask("CREATE DATABASE pilotlight")
        url = primary.url("pilotlight")
        await upgrade(url)
        token = await _token(url)
        project_id = await fill(url)
        env = {"DATABASE_URL": url, "NOVITA_API_KEY": "sk_bench", "NOVITA_API_BASE_URL": "http://127.0.0.1:1"}
        env |= {"LOG_LEVEL": "error", "RECONCILE_INTERVAL": "1h"}

        async def serve(name: str, **more: str) -> Peer:
            ready = home / f"{name}.json"
            started = _start(stack, [PILOTLIGHT, "serve", "--port", "0", "--ready-file", str(ready)], env | more)
            return Peer(name, await _ready(ready), psutil.Process(started.pid))

        peers = {OURS: await serve(OURS)}
        starlette = _start(stack, [sys.executable, "-m", "bench.reads_starlette", url, str(project_id), token], {})
        peers[STARLETTE] = Peer(STARLETTE, _line(starlette), psutil.Process(starlette.pid))
        # Servers close connections that were idle for long, as while another one starts on a busy machine.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}, connector=connector) as session:
            rows, cursors = await _all_rows(session, peers[OURS].url)
            if folder is None:
                print("Mercurius and graphql-yoga are left out: they need node, npm and a registry")
            else:
                script = str(Path(__file__).with_name("reads_mercurius.mjs"))
                command = ["node", script, str(folder), url, str(project_id), token]
                mercurius = _start(stack, command, {"NODE_ENV": "production"})
                peers[MERCURIUS] = Peer(MERCURIUS, _line(mercurius), psutil.Process(mercurius.pid))
                peers[YOGA_NAME] = start_yoga(stack, folder, home, rows)
            cases = await _cases(session, peers[OURS].url, rows, cursors)
            report = Report()
            chosen = {name: each for name, each in cases.items() if not only or any(word in name for word in only)}
            for case in chosen.values():
                if not await _agree(session, case, peers):
                    return False
                await measure(case, peers, token, seconds)
            judge(chosen, report)
        if not only or "replica" in only:
            peers[REPLICA] = await serve("replica", DATABASE_READ_URL=replica.url("pilotlight"))
            for name in ("same page", "another page"):
                case = Case(name, cases[name].bodies)
                await measure(case, {each: peers[each] for each in (OURS, REPLICA)}, token, seconds, all_peers=True)
                report.add(f"{name} with a replica, of without", case.cpu[REPLICA] / case.cpu[OURS], 1.2)
        if not only or "tail" in only:
            for name in ("one instance", "same page"):
                await tails(name, cases[name], peers[OURS], token, max(seconds, 2), report)
        if not only or "two" in only:
            apis = peers[OURS], await serve("second")
            await two_processes(cases["dashboard page"], apis, primary, token, seconds, report)
        if not only or "fan-out" in only:
            await fan_out(primary, report)
        failed = [text for text, is_kept in report.lines if not is_kept]
        print(f"\n{len(report.lines) - len(failed)} of {len(report.lines)} promises are kept", *failed, sep="\n")
        return not failed


async def _cases(session: aiohttp.ClientSession, url: str, rows: list[Any], cursors: list[str]) -> dict[str, Case]:
    web, examples = documents_of(ROOT / "web/src/documents"), documents_of(ROOT / "examples/python-typed")
    ids = [row["id"] for row in rows]
    wanted = await _ask(session, url, {"query": "{ operations(first: 100) { nodes { id } } }"})
    operations = [each["id"] for each in wanted["data"]["operations"]["nodes"]]
    moments = [row["createdAt"] for row in rows[100:1100]]
    every = (MERCURIUS, STARLETTE, YOGA_NAME)
    cases = [
        Case("same page", lambda: same(PAGE), every),
        Case("another page", lambda: each_of(PAGE, "after", cursors), every),
        Case("filter", lambda: each_of(FILTERED, "since", moments), every[:2]),
        Case("filter by region", lambda: each_of(REGION, "region", list(REGIONS)), every[:2]),
        Case("new document", generated, (MERCURIUS, YOGA_NAME)),
        Case("one instance", lambda: each_of(ONE, "id", ids), every),
        Case("{ __typename }", lambda: same("{ __typename }")),
        Case("serverInfo", lambda: same("{ serverInfo { version } }")),
        Case("viewer", lambda: same("{ viewer { role token { name } project { name } } }")),
        Case("dashboard page", lambda: each_of(web["FleetPage"], "after", [None, *cursors[1::2]], direction="DESC")),
        Case("dashboard detail", lambda: each_of(web["InstanceDetail"], "id", ids)),
        Case("dashboard deliveries", lambda: each_of(web["Deliveries"], "id", ids)),
        Case("example: awaitOperation", lambda: each_of(examples["AwaitOperation"], "id", operations)),
    ]
    return {each.name: each for each in cases}


async def _all_rows(session: aiohttp.ClientSession, url: str) -> tuple[list[Any], list[str]]:
    """All rows, and the cursors of pages of 50: more rows than the server keeps."""
    rows: list[Any] = []
    cursors: list[str] = []
    while True:
        body = {"query": ALL, "variables": {"after": cursors[-1] if cursors else None}}
        page = (await _ask(session, url, body))["data"]["instances"]
        if not page["nodes"]:
            return rows, cursors[:-1]
        rows += page["nodes"]
        cursors.append(page["pageInfo"]["endCursor"])


async def _agree(session: aiohttp.ClientSession, case: Case, peers: dict[str, Peer]) -> bool:
    """Three different questions of the case, each asked three times: the first answers are not compiled."""
    bodies = case.bodies()
    for body in [next(bodies) for _ in range(3)]:
        answers: dict[str, Any] = {}
        for name in (OURS, *(name for name in case.peers if name in peers)):
            for _ in range(3):
                answers[name] = await _ask(session, peers[name].url, orjson.loads(body))
        ours = answers[OURS]
        if "errors" in ours or any(each["data"] != ours["data"] for each in answers.values()):
            print(f"{case.name}: the responses DIFFER: {[str(each)[:600] for each in answers.values()]}")
            return False
    return True


async def measure(case: Case, peers: dict[str, Peer], token: str, seconds: float, *, all_peers: bool = False) -> None:
    bodies = case.bodies()  # shared by all rounds, so that a generated document is never sent twice
    names = list(peers) if all_peers else [OURS, *(name for name in case.peers if name in peers)]
    used: dict[str, list[float]] = {name: [] for name in names}
    for number in range(ROUNDS + 1):
        for name in names:
            peer = peers[name]
            before = sum(peer.process.cpu_times()[:2])
            length = seconds if number else 0.4
            done = await send_for(length, [peer.url], token, bodies, connections=CONNECTIONS)
            if number:
                used[name].append((sum(peer.process.cpu_times()[:2]) - before) / len(done))
    case.cpu = {name: median(each) * 1000 for name, each in used.items()}
    print(f"{case.name:>24}: " + "   ".join(f"{name} {cpu:.2f}" for name, cpu in case.cpu.items()), "ms", flush=True)


def judge(cases: dict[str, Case], report: Report) -> None:
    for name, to, limit in (
        ("another page", MERCURIUS, 1.0),
        ("filter", MERCURIUS, 1.5),
        ("filter by region", MERCURIUS, 1.5),
        ("one instance", STARLETTE, 2.0),
    ):
        if name in cases and to in cases[name].cpu:
            report.add(f"{name}, of {to}", cases[name].ratio(to), limit)
    for name in ("serverInfo", "viewer"):
        if name in cases and "{ __typename }" in cases:
            report.add(f"{name}, of __typename", cases[name].cpu[OURS] / cases["{ __typename }"].cpu[OURS], 1.2)
    for name, limit in (("dashboard page", 4), ("dashboard detail", 2), ("new document", 3)):
        if name in cases:
            report.add(name, cases[name].cpu[OURS], limit, "ms")


async def tails(name: str, case: Case, ours: Peer, token: str, seconds: float, report: Report) -> None:
    """Of several rounds the best one: other work on the machine only ever adds."""
    best = (9e9, 0.0, 0.0)
    for _ in range(3):
        took = await send_for(seconds, [ours.url], token, case.bodies(), connections=32)
        cuts = quantiles(took, n=100)
        best = min(best, (cuts[98] / cuts[49], cuts[49] * 1000, cuts[98] * 1000))
    print(f"{name}, 32 at once: p50 {best[1]:.1f} ms, p99 {best[2]:.1f} ms")
    report.add(f"{name}, p99 of p50 at 32 at once", best[0], 3.0)


async def two_processes(
    case: Case, apis: tuple[Peer, Peer], primary: PostgresServer, token: str, seconds: float, report: Report
) -> None:
    """The client and PostgreSQL are on the same processors, so what they take limits the ratio: it is printed."""
    assert primary.process is not None
    server, client = psutil.Process(primary.process.pid), psutil.Process()

    def spent() -> list[float]:
        parts = [each.process for each in apis], server.children(recursive=True), [client]
        return [sum(map(_cpu, part)) for part in parts]

    rates: dict[int, list[float]] = {1: [], 2: []}
    used: list[list[float]] = []
    for number in range(ROUNDS + 1):
        for urls in ([apis[0].url], [each.url for each in apis]):
            began, before = time.perf_counter(), spent()
            done = await send_for(seconds, urls, token, case.bodies(), connections=32)
            if number:
                rates[len(urls)].append(len(done) / (time.perf_counter() - began))
                used.append([(now - then) / len(done) * 1000 for now, then in zip(spent(), before, strict=True)])
    one, two = median(rates[1]), median(rates[2])
    print(f"{case.name}: one API process {one:,.0f}/s, two {two:,.0f}/s")
    api, postgres, client_cpu = map(median, zip(*used, strict=True))
    print(f"CPU of a request: the API {api:.2f} ms, PostgreSQL {postgres:.2f} ms, the client {client_cpu:.2f} ms;")
    print(f"two processors allow at most {2 * api / (api + postgres + client_cpu):.2f} times the rate of one process")
    report.add(f"{case.name}, two API processes of one", two / one, 1.6, at_least=True)


def _cpu(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:  # a background worker of PostgreSQL that has ended
        return 0.0


async def fan_out(primary: PostgresServer, report: Report) -> None:
    """One event to 1,000 subscribers of which no two select the same."""
    await primary.ask("CREATE DATABASE fan_out")
    url = primary.url("fan_out")
    await upgrade(url)
    database = Database(url, pool_size=4)
    signals = Notifier(database)
    signals.start()
    try:
        world = live.World(database, url)
        await world.prepare()
        result = await live.fan_out(world, "ours", 1000, burst=20, singles=3, query_of=lambda n: FAN_OUT.format(n))
    finally:
        await signals.stop()
        await database.close()
    report.add("fan-out of 1,000 different selections, CPU of a message", result.cpu_us, 80, "us")


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(url, data=orjson.dumps(body), headers={"content-type": "application/json"}) as response:
        return orjson.loads(await response.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each round")
    parser.add_argument("--only", default="", help="words, separated by commas")
    given = parser.parse_args()
    sys.exit(0 if uvloop.run(main(given.seconds, [word for word in given.only.split(",") if word])) else 1)
