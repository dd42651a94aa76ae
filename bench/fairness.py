"""Whether a burst of creates delays anything else: stops, deletes, starts, watching, and other projects' creates.

    python -m bench.fairness                          1,000 creates; takes about a quarter of an hour
    python -m bench.fairness --creates 200            a few minutes
    python -m bench.fairness --only greed             only the part with projects of unequal greed
    python -m bench.fairness --only reads             only the part with a project that reads all the time

`pilotlight up` runs with its default settings (but for the limit of requests per token) against a simulator at speed 1
in a process of its own. A proxy between the two notes when each call passes, so nothing here relies on what Pilotlight
says about itself. Part one: one project creates many instances at once; every 5 seconds another project stops, deletes,
starts or creates one. Part two: five projects create unequally many. Part three: like part one, with fewer creates,
while the project of the burst reads one machine from the provider as often as it can; these reads do not count as calls
of the creates. The last lines say whether the promises hold; ends with 1 if one does not.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import orjson
import uvloop
from aiohttp import web

from server.auth.tokens import create_token, new_secret
from server.db.database import Database
from server.enums import Role

RATE_LIMIT = 100  # the default of NOVITA_RATE_LIMIT
TICK = 5.0
VERBS = ("stop", "delete", "start", "create")
GREED = (0.5, 0.25, 0.15, 0.06, 0.04)
READERS = 20
REFUSED_PAUSE = 0.1  # seconds until a refused reader tries again
CREATES_BESIDE_READS = 200  # at most: with half of the calls gone, more would take long and show nothing else
PILOTLIGHT = str(Path(sys.executable).with_name("pilotlight"))
CREATE = """mutation ($input: CreateInstanceInput!) { payload: createInstance(input: $input) {
  instance { id estimatedReadyAt } operation { id } errors { code message } } }"""
CHANGE = """mutation ($id: ID!) { payload: %sInstance(input: {id: $id}) {
  instance { id } operation { id } errors { code message } } }"""
READ = "query ($id: ID!) { sshAccess(instanceId: $id) { command } }"
# The kinds whose lateness is promised.
WATCHED = ("WATCH_RECLAIM", "RECONCILE", "HEALTH_CHECK", "WATCH_HEALTH", "PROBE_WATCHED")
LATE = """SELECT kind, max(extract(epoch FROM clock_timestamp() - run_at))::float8 AS late FROM job
          WHERE status = 'WAITING' AND run_at < clock_timestamp() AND kind = ANY($1) GROUP BY kind"""


@dataclass(slots=True)
class Passed:
    """One call that passed the proxy; `about` is the machine's id or name."""

    at: float
    route: str
    about: str


class Proxy:
    """Passes every call on to the simulator and notes it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.calls: list[Passed] = []
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Proxy"]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield self
            finally:
                await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.Response:
        body = await request.read()
        sent: Any = orjson.loads(body) if body else {}
        about = sent.get("instanceId") or sent.get("name") or request.query.get("instanceId", "")
        route = f"{request.method} {request.path.rpartition('/v1')[2]}"
        if not request.path.startswith("/control"):
            self.calls.append(Passed(time.time(), route, about))
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with self._session.request(
            request.method, self._target + request.raw_path, data=body, headers=headers
        ) as response:
            kept = {
                name: value
                for name, value in response.headers.items()
                if name.lower() not in ("content-length", "transfer-encoding", "content-encoding")
            }
            return web.Response(status=response.status, body=await response.read(), headers=kept)


class Caller:
    """One project's client."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session, self._url = session, url
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    async def send(self, query: str, **variables: Any) -> Any:
        body = orjson.dumps({"query": query, "variables": variables})
        async with self._session.post(self._url, data=body, headers=self._headers) as response:
            return orjson.loads(await response.read())

    async def change(self, query: str, **variables: Any) -> Any:
        answer = await self.send(query, **variables)
        payload = (answer.get("data") or {}).get("payload")
        if payload is None or payload["errors"]:
            raise SystemExit(f"refused: {answer}")
        return payload

    async def create(self, name: str, *, serves: bool = False) -> Any:
        given = {"name": name, "productName": "RTX 4090 24GB", "image": "nginx"}
        return await self.change(CREATE, input=given | ({"ports": [{"port": 80}]} if serves else {}))


@dataclass(slots=True)
class Request:
    """A change that was requested beside the burst."""

    verb: str
    at: float
    operation: UUID
    about: str


@dataclass(slots=True)
class Server:
    """Everything that runs, and what was seen so far."""

    url: str
    database: "asyncpg.Pool[Any]"
    proxy: Proxy
    simulator: str
    session: aiohttp.ClientSession
    tokens_url: str
    running_since: dict[str, float] = field(default_factory=dict[str, float])
    late: Counter[str] = field(default_factory=Counter[str])

    async def caller(self, project: str) -> Caller:
        database = Database(self.tokens_url)
        secret = new_secret()
        async with database.write() as session:
            await create_token(session, project=project, name="bench", role=Role.OPERATOR, secret=secret)
        await database.close()
        return Caller(self.session, self.url, secret)

    async def watch(self) -> None:
        """Note when each machine first runs, and how late the watching jobs are."""
        while True:
            async with self.session.get(f"{self.simulator}/control/machines") as response:
                machines = orjson.loads(await response.read())["machines"]
            for machine in machines:
                if machine["status"] == "running":
                    self.running_since.setdefault(machine["id"], time.time())
            for row in await self.database.fetch(LATE, list(WATCHED)):
                self.late[row["kind"]] = max(self.late[row["kind"]], row["late"])
            await asyncio.sleep(1)

    async def until(self, query: str, *values: Any, seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not await self.database.fetchval(query, *values):
            if time.monotonic() > deadline:
                raise SystemExit(f"{what} took longer than {seconds:.0f} s")
            await asyncio.sleep(0.5)


@asynccontextmanager
async def running() -> AsyncGenerator[Server]:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-bench-")))
        command = [sys.executable, "-m", "server.simulator", "--stock-factor", "100000", "--max-listeners", "500"]
        simulator = _start(stack, command, {})
        assert simulator.stdout is not None
        simulator_url = simulator.stdout.readline().strip()
        proxy = await stack.enter_async_context(Proxy(simulator_url).running())
        env = {
            "NOVITA_API_KEY": "sk_bench",
            "NOVITA_API_BASE_URL": proxy.url,
            "LOG_LEVEL": "warning",
            "REQUEST_RATE_LIMIT": "0",
            "REQUEST_RATE_LIMIT_PER_PROJECT": "0",
            "PILOTLIGHT_HOME": str(home),
            "BUILD_PAGES": "false",
        }
        ready = home / "ready.json"
        _start(stack, [PILOTLIGHT, "up", "--port", "0", "--ready-file", str(ready)], env)
        deadline = time.monotonic() + 90
        while not ready.exists():
            if time.monotonic() > deadline:
                raise SystemExit("the server did not start")
            await asyncio.sleep(0.1)
        found = orjson.loads(ready.read_bytes())
        pool = await asyncpg.create_pool(found["databaseUrl"], min_size=1, max_size=4)
        stack.push_async_callback(pool.close)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=32, keepalive_timeout=1))
        )
        server = Server(found["graphqlUrl"], pool, proxy, simulator_url, session, found["databaseUrl"])
        watching = asyncio.create_task(server.watch())
        try:
            yield server
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


Promise = tuple[str, float, float]  # what, the figure, which it must not exceed


async def burst(server: Server, creates: int, verbs: Sequence[str], *, readers: int = 0) -> list[Promise]:
    greedy, other = await server.caller("greedy"), await server.caller("other")
    rounds = max(2, round(creates * 60 / RATE_LIMIT * 1.7 / TICK / len(VERBS)))
    ids = await fleet(server, other, rounds)
    quiet = {verb: await timed(server, other, verb, ids) for verb in VERBS}
    await timed(server, greedy, "create", ids)  # it has a history from which to promise
    print(
        "quiet server, seconds to the provider and to the end:", {k: f"{a:.1f} {b:.1f}" for k, (a, b) in quiet.items()}
    )
    read_machine, reading = await hammer(server, greedy, readers) if readers else ("", [])
    server.late.clear()
    first_call, began = len(server.proxy.calls), time.time()
    accepted = await asyncio.gather(
        *(greedy.create(f"burst-{number}-{uuid4().hex[:8]}", serves=number % 10 == 0) for number in range(creates))
    )
    print(f"{creates} creates accepted in {time.time() - began:.1f} s", flush=True)
    requests: list[Request] = []
    count = "SELECT count(*) FROM attempt a JOIN instance i ON i.id = a.instance_id WHERE i.name LIKE 'burst-%'"
    tick = 0
    while await server.database.fetchval(count) < creates:
        await asyncio.sleep(TICK)
        for verb in verbs if verbs != ("turn",) else (VERBS[tick % len(VERBS)],):
            if verb == "create" or ids[verb]:
                requests.append(await change(other, verb, ids))  # noqa: PERF401 - one after the other
        tick += 1
        if tick % 12 == 0:
            done = await server.database.fetchval(count)
            print(
                f"  {time.time() - began:5.0f} s: {done} begun, {len(server.proxy.calls) - first_call} calls",
                flush=True,
            )
    created = time.time()
    for task in reading:
        task.cancel()
    calls = server.proxy.calls[first_call:]
    ready = "SELECT count(*) = 0 FROM instance WHERE name LIKE 'burst-%' AND status <> 'READY'"
    await server.until(ready, seconds=120, what="the last READY")
    open_left = "SELECT count(*) = 0 FROM operation WHERE finished_at IS NULL"
    await server.until(open_left, seconds=60, what="the end of the others")
    return [
        *await judge_requests(server, requests, quiet),
        *await judge_watching(server, began),
        *await judge_promises(server, accepted),
        *judge_calls(calls, requests, creates, created - began, read_machine),
    ]


async def hammer(server: Server, caller: Caller, readers: int) -> tuple[str, list[asyncio.Task[None]]]:
    """Read one machine from the provider as often as the server allows, from now on."""
    first = await caller.create("to-read")
    is_ready = "SELECT status = 'READY' FROM instance WHERE name = 'to-read'"
    await server.until(is_ready, seconds=120, what="the machine to read")
    novita_id = await server.database.fetchval("SELECT novita_id FROM instance WHERE name = 'to-read'")
    second = await server.caller("greedy")  # another token: the limit per token is lower than that per project
    tasks = [
        asyncio.create_task(_read((caller, second)[number % 2], first["instance"]["id"])) for number in range(readers)
    ]
    await asyncio.sleep(30)  # it has been going on when the burst comes
    return novita_id, tasks


async def fleet(server: Server, other: Caller, rounds: int) -> dict[str, list[str]]:
    """Machines to stop, to delete and to start."""
    made = [await other.create(f"{verb}-{number}") for verb in VERBS[:3] for number in range(rounds + 1)]
    ids = {verb: [each["instance"]["id"] for each in made[place :: 1][: rounds + 1]] for verb, place in
           (("stop", 0), ("delete", rounds + 1), ("start", 2 * (rounds + 1)))}  # fmt: skip
    await server.until("SELECT count(*) = 0 FROM instance WHERE status <> 'READY'", seconds=300, what="the fleet")
    for instance_id in ids["start"]:
        await other.change(CHANGE % "stop", id=instance_id)
    open_left = "SELECT count(*) = 0 FROM operation WHERE finished_at IS NULL"
    await server.until(open_left, seconds=300, what="stopping a third of the fleet")
    await asyncio.sleep(6)  # the budget is full again
    return ids


async def change(caller: Caller, verb: str, ids: dict[str, list[str]]) -> Request:
    at = time.time()
    if verb == "create":
        payload = await caller.create(f"other-{uuid4().hex[:8]}")
    else:
        payload = await caller.change(CHANGE % verb, id=ids[verb].pop())
    return Request(verb, at, _uuid(payload["operation"]["id"]), payload["instance"]["id"])


async def timed(server: Server, caller: Caller, verb: str, ids: dict[str, list[str]]) -> tuple[float, float]:
    request = await change(caller, verb, ids)
    await server.until("SELECT finished_at IS NOT NULL FROM operation WHERE id = $1", request.operation,
                       seconds=120, what=verb)  # fmt: skip
    return await reached(server, request)


async def reached(server: Server, request: Request) -> tuple[float, float]:
    """Seconds from the request until the provider was called for it, and until it ended."""
    row = await server.database.fetchrow(
        "SELECT extract(epoch FROM o.finished_at)::float8 AS ended, i.novita_id, i.name FROM operation o"
        " JOIN instance i ON i.id = o.instance_id WHERE o.id = $1",
        request.operation,
    )
    assert row is not None
    route = f"POST /gpu/instance/{request.verb}"
    for call in server.proxy.calls:
        is_about = call.about.startswith(row["name"]) if request.verb == "create" else call.about == row["novita_id"]
        if call.at >= request.at and call.route == route and is_about:
            return call.at - request.at, (row["ended"] or time.time()) - request.at
    return time.time() - request.at, time.time() - request.at


async def judge_requests(
    server: Server, requests: list[Request], quiet: dict[str, tuple[float, float]]
) -> list[Promise]:
    promises: list[Promise] = []
    for verb in VERBS:
        pairs = [await reached(server, request) for request in requests if request.verb == verb]
        if not pairs:
            continue
        called, ended = ([pair[place] for pair in pairs] for place in (0, 1))
        print(
            f"{verb:>7}: {len(pairs)}; to the provider p50 {_at(called, 0.5):.2f} p99 {_at(called, 0.99):.2f} s;"
            f" to the end p50 {_at(ended, 0.5):.1f} p99 {_at(ended, 0.99):.1f} s (quiet {quiet[verb][1]:.1f} s)"
        )
        if verb in ("stop", "delete"):
            promises.append((f"{verb} reaches the provider, p99 s", _at(called, 0.99), 2.0))
            promises.append((f"{verb} ends after a quiet one, p99 s", _at(ended, 0.99) - quiet[verb][1], 5.0))
        if verb == "create":
            promises.append(("another project's create begins, p99 s", _at(called, 0.99), 5.0))
    return promises


async def judge_watching(server: Server, began: float) -> list[Promise]:
    rows = await server.database.fetch(
        "SELECT novita_id, extract(epoch FROM running_at)::float8 AS running, extract(epoch FROM ready_at)::float8"
        " AS ready FROM instance WHERE name LIKE 'burst-%' OR name LIKE 'other-%'"
    )
    late = {"RUNNING": [0.0], "READY": [0.0]}
    for row in rows:
        since = server.running_since.get(row["novita_id"], 0.0)
        if since >= began and row["running"]:
            late["RUNNING"].append(row["running"] - since)
            late["READY"].append((row["ready"] or time.time()) - since)
    for status, values in late.items():
        print(f"{status} here after running there: p50 {_at(values, 0.5):.1f} s, p99 {_at(values, 0.99):.1f} s,"
              f" longest {max(values):.1f} s ({len(values)})")  # fmt: skip
    print("watching jobs late by at most, s:", {kind: round(late, 1) for kind, late in server.late.items()})
    return [
        ("RUNNING here after running there, longest s", max(late["RUNNING"]), 15.0),
        ("READY here after running there, longest s", max(late["READY"]), 30.0),
        ("reclaim watch, reconcile and health checks late by, longest s", max(server.late.values(), default=0.0), 10.0),
    ]


async def judge_promises(server: Server, accepted: Sequence[Any]) -> list[Promise]:
    rows = await server.database.fetch(
        "SELECT id, extract(epoch FROM created_at)::float8 AS created, extract(epoch FROM ready_at)::float8 AS ready"
        " FROM instance WHERE name LIKE 'burst-%'"
    )
    took = {row["id"]: (row["created"], row["ready"]) for row in rows if row["ready"]}
    errors: list[float] = []
    for payload in accepted:
        created, ready = took.get(_uuid(payload["instance"]["id"]), (0.0, 0.0))
        if ready:
            promised = _epoch(payload["instance"]["estimatedReadyAt"])
            errors.append(abs(promised - ready) / (ready - created))
    print(
        f"promised and real ready times differ by {_at(errors, 0.5):.0%} at the median, {_at(errors, 0.9):.0%} at p90"
    )
    return [("promised and real ready times differ, median", _at(errors, 0.5), 0.25)]


def judge_calls(
    calls: list[Passed], requests: list[Request], creates: int, seconds: float, read_machine: str
) -> list[Promise]:
    routes = Counter(call.route for call in calls)
    reads = sum(bool(read_machine) and call.about == read_machine for call in calls)
    print(f"{len(calls)} calls in {seconds:.0f} s, {reads} of them the reads: {dict(routes.most_common())}")
    # What the requests beside the burst cost at least: a look and a call each, the create a call.
    beside = sum(1 if request.verb == "create" else 2 for request in requests)
    if read_machine and reads < seconds / 60 * 20:
        raise SystemExit(f"only {reads} reads in {seconds:.0f} s: the burst was not disturbed as it should be")
    return [
        ("time of the burst / (calls / rate limit)", seconds / (len(calls) / RATE_LIMIT * 60), 1.1),
        ("provider calls per create", (len(calls) - reads - beside) / creates, 1.3),
    ]


async def greed(server: Server, creates: int) -> list[Promise]:
    """Five projects of unequal greed."""
    callers = [await server.caller(f"project-{number}") for number in range(len(GREED))]
    shares = [max(5, int(creates * part)) for part in GREED]
    began = time.time()
    await asyncio.gather(
        *(
            caller.create(f"greed-{uuid4().hex[:12]}")
            for caller, many in zip(callers, shares, strict=True)
            for _ in range(many)
        )
    )
    counted = """SELECT p.name, count(a.id) AS begun FROM project p JOIN instance i ON i.project_id = p.id
                 LEFT JOIN attempt a ON a.instance_id = i.id WHERE i.name LIKE 'greed-%' GROUP BY p.name ORDER BY 1"""
    begun: list[int] = []
    while not begun or all(have < want for have, want in zip(begun, shares, strict=True)):
        if time.time() - began > 600:
            break
        await asyncio.sleep(0.5)
        begun = [row["begun"] for row in await server.database.fetch(counted)]
    seconds = time.time() - began
    jain = sum(begun) ** 2 / (len(begun) * sum(each * each for each in begun)) if any(begun) else 0.0
    print(f"asked for {shares}, begun {begun} when the first had all, after {seconds:.0f} s; Jain's index {jain:.3f}")
    return [("0.95 / Jain's index of begun creates", 0.95 / max(jain, 1e-9), 1.0)]


async def _read(caller: Caller, instance_id: str) -> None:
    while True:
        answer = await caller.send(READ, id=instance_id)
        errors = answer.get("errors", [])
        if not all(error["extensions"].get("retryable") for error in errors):
            raise SystemExit(f"a read failed: {answer}")
        if errors:
            await asyncio.sleep(REFUSED_PAUSE)


async def main(options: argparse.Namespace) -> bool:
    verbs = VERBS if options.all_verbs else ("turn",)
    parts: dict[str, Callable[[Server], Awaitable[list[Promise]]]] = {
        "burst": lambda server: burst(server, options.creates, verbs),
        "greed": lambda server: greed(server, options.creates),
        "reads": lambda server: burst(server, min(options.creates, CREATES_BESIDE_READS), verbs, readers=READERS),
    }
    promises: list[Promise] = []
    for name, run in parts.items():
        if options.only in (None, name):
            print(f"\n{name}", flush=True)
            async with running() as server:
                promises += [(f"{name}: {what}", figure, limit) for what, figure, limit in await run(server)]
    print("\npromises")
    for name, figure, limit in promises:
        print(f"  {'pass' if figure <= limit else 'FAIL'}  {name}: {figure:.2f}, at most {limit}")
    return all(figure <= limit for _, figure, limit in promises)


def _at(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def _uuid(node_id: str) -> UUID:
    return UUID(node_id.rpartition("_")[2]) if "_" in node_id else UUID(node_id)


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _start(stack: AsyncExitStack, command: list[str], env: dict[str, str]) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | env
    )
    end: Callable[[subprocess.Popen[str]], None] = _end
    stack.callback(end, process)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--creates", type=int, default=1_000)
    parser.add_argument("--all-verbs", action="store_true", help="all four verbs every 5 s instead of one of them")
    parser.add_argument("--only", choices=("burst", "greed", "reads"), default=None)
    sys.exit(0 if uvloop.run(main(parser.parse_args())) else 1)
