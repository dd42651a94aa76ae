"""A worker is killed -9 while the provider is being asked: how long until another one has finished its work.

    python -m bench.killed_worker             with the default settings: about a minute and a half
    python -m bench.killed_worker --factor 10 with all times a tenth of that

Two creates and two deletes are in the air when their only worker is killed; the provider has carried out one of each
and will never carry out the others. Another worker starts at once. Printed are the seconds from the kill until the
machine of a create is known to its instance, and until a deleted instance is DELETED. A delete that was carried out
without a response is believed after GONE_GRACE: one look that does not find the machine proves nothing.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from server.config import Settings
from server.db.embedded.server import EmbeddedPostgres
from tests.support.processes import QUICK, Pilotlight, control, made, pilotlight, run
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

CREATE, DELETE = "POST /gpu/instance/create", "POST /gpu/instance/delete"
CREATE_INSTANCE = """
    mutation ($name: String!) {
      createInstance(input: {name: $name, productName: "RTX 4090 24GB", image: "nginx"}) {
        instance { id } errors { code message } } }
"""
DELETE_INSTANCE = "mutation ($id: ID!) { deleteInstance(input: {id: $id}) { errors { code message } } }"
INSTANCE = "query ($id: ID!) { instance(id: $id) { status novitaId } }"
# Settings that decide how long it takes.
TIMES = ("job_lease", "request_timeout", "create_grace", "gone_grace", "instance_poll_interval", "breaker_recovery")
TARGETS = {"create, made": 30.0, "create, not made": 60.0, "delete, done": 90.0, "delete, not done": 60.0}
WITHIN = 300.0


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds from the kill to the end of each, and how many machines there were."""

    seconds: dict[str, float]
    machines_made: int
    machines_left: int


async def measure(database_url: str, folder: Path, *, factor: float = 1.0) -> Result:
    """The database is empty. `factor` shortens all settings that are times."""
    async with AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        await simulator.says("http://")
        provider = next(word for word in simulator.said.split() if word.startswith("http://"))
        env = {**_settings(factor), "DATABASE_URL": database_url, "NOVITA_API_BASE_URL": provider}
        env |= {"NOVITA_API_KEY": "sk_x", "LOG_FORMAT": "json"}
        await run("migrate", env=env)
        token = (await run("token", "create", "bench", env=env)).printed.strip()
        file = folder / "api.json"
        serving = {**env, "REQUEST_DEADLINE": "30s"}  # a request may wait for a busy machine
        await stack.enter_async_context(pilotlight("serve", "--port", "0", "--ready-file", str(file), env=serving))
        await until(file.exists, within=60)
        client = GraphQLClient(json.loads(file.read_text())["graphqlUrl"], token)
        async with _worker(env) as victim:
            ids = {name: await _create(client, name) for name in ("delete, done", "delete, not done")}
            for name in ids:
                await _until_status(client, ids[name], "READY")
            await _in_the_air(provider, DELETE, "hangAfter", lambda: _delete(client, ids["delete, done"]))
            await _in_the_air(provider, DELETE, "hang", lambda: _delete(client, ids["delete, not done"]))
            ids["create, made"] = await _in_the_air(
                provider, CREATE, "hangAfter", lambda: _create(client, "create, made")
            )
            ids["create, not made"] = await _in_the_air(
                provider, CREATE, "hang", lambda: _create(client, "create, not made")
            )
            await victim.kill_tree()
            killed = time.monotonic()
        await control(provider, "faults", {"faults": []})
        await stack.enter_async_context(_worker(env))
        seconds = dict(
            zip(ids, await asyncio.gather(*(_seconds(client, ids[name], name, killed) for name in ids)), strict=True)
        )
        left = (await control(provider, "state"))["byStatus"]
        return Result(seconds, await made(provider), sum(left.values()) - left.get("removed", 0))


def _settings(factor: float) -> dict[str, str]:
    """The defaults, also of what tests make quick; shortened."""
    defaults: dict[str, Any] = {name: field.default for name, field in Settings.model_fields.items()}
    usual = {name: str(defaults[name.lower()]) for name in QUICK if not isinstance(defaults[name.lower()], timedelta)}
    times = {*TIMES, *(name.lower() for name in QUICK if isinstance(defaults[name.lower()], timedelta))}
    shortened = {name.upper(): f"{defaults[name].total_seconds() / factor * 1000:.0f}ms" for name in times}
    # The time for sending a create is at most ten seconds, however long the deadline is.
    deadline = {} if factor == 1 else {"REQUEST_DEADLINE": f"{10_000 / factor:.0f}ms"}
    rate_limit = {"NOVITA_RATE_LIMIT": f"{defaults['novita_rate_limit'] * factor:.0f}"}  # calls per minute
    return {**usual, **shortened, **deadline, **rate_limit, "SIMULATOR_SPEED": "20"}


@asynccontextmanager
async def _worker(env: dict[str, str]) -> AsyncGenerator[Pilotlight]:
    async with pilotlight("worker", env=env) as worker:
        await worker.says("worker.ready")
        yield worker


async def _in_the_air(provider: str, route: str, kind: str, request: Callable[[], Awaitable[str]]) -> str:
    """Make a request whose call the provider does not answer, and wait until that call has arrived there."""
    await control(provider, "faults", {"faults": [{"kind": kind, "routes": [route], "times": 1}]})
    before = (await control(provider, "state"))["calls"].get(route, 0)
    id = await request()

    async def has_arrived() -> bool:
        return (await control(provider, "state"))["calls"].get(route, 0) > before

    await until(has_arrived, within=60)
    return id


async def _create(client: GraphQLClient, name: str) -> str:
    payload = (await client.ask(CREATE_INSTANCE, name=name))["createInstance"]
    if payload["errors"]:
        raise RuntimeError(str(payload["errors"]))
    return str(payload["instance"]["id"])


async def _delete(client: GraphQLClient, id: str) -> str:
    await client.ask(DELETE_INSTANCE, id=id)
    return id


async def _until_status(client: GraphQLClient, id: str, status: str) -> None:
    async def is_there() -> bool:
        return (await client.ask(INSTANCE, id=id))["instance"]["status"] == status

    await until(is_there, within=WITHIN)


async def _seconds(client: GraphQLClient, id: str, name: str, killed: float) -> float:
    async def is_over() -> bool:
        instance = (await client.ask(INSTANCE, id=id))["instance"]
        return instance["status"] == "DELETED" if name.startswith("delete") else instance["novitaId"] is not None

    await until(is_over, within=WITHIN)
    return time.monotonic() - killed


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factor", type=float, default=1.0, help="by which all times are shortened")
    factor: float = parser.parse_args().factor
    with tempfile.TemporaryDirectory(prefix="pilotlight-killed-", ignore_cleanup_errors=True) as name:
        async with EmbeddedPostgres(Path(name) / "home") as database:
            result = await measure(database.url, Path(name), factor=factor)
    lines = [f"{'in the air':20} {'seconds':>8} {'target':>8}"]
    lines += [f"{name:20} {seconds:>8.1f} {TARGETS[name] / factor:>8.1f}" for name, seconds in result.seconds.items()]
    lines.append(f"{result.machines_made} machines made for 4 creates, {result.machines_left} left")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
