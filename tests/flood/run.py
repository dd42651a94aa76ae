"""Attacks `pilotlight up` in every way of `attacks.py` while a healthy client measures: python -m tests.flood.run

For each attack: the client's p99 before and during it, errors, lost leases, and memory at its peak and afterwards.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil

from tests.flood.attacks import ATTACKS
from tests.support.processes import ROOT, Up, up
from tests.support.waiting import until

QUERY = {"query": "{ instances(first: 5) { nodes { id name status } } }"}
TOKEN = 'mutation { createToken(input: {name: "attacker", role: OPERATOR}) { secret } }'
PAUSE = 0.02  # seconds between requests of the healthy client
MB = 1024 * 1024
MEMORY_MAX = 64 * MB
LOG_LINES_MAX = 20  # a second: a flood must not fill the disk
RECOVERY = 30.0


@dataclass
class Measured:
    """Requests of the healthy client, and memory of the server."""

    seconds: list[float] = field(default_factory=list[float])
    errors: int = 0
    memory: int = 0

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[98] if len(self.seconds) > 1 else 0.0


@dataclass
class Verdict:
    name: str
    quiet: Measured
    attacked: Measured
    before: int
    after: int
    leases_lost: int
    log_lines: int
    counts: dict[str, int]
    lines_allowed: float

    @property
    def problems(self) -> list[str]:
        allowed = 3 * self.quiet.p99 + 0.05
        found = [f"p99 {self.attacked.p99 * 1000:.0f} ms > {allowed * 1000:.0f} ms"] * (self.attacked.p99 > allowed)
        return found + self.hard_problems

    @property
    def hard_problems(self) -> list[str]:
        """Those that do not depend on the speed of the machine."""
        found: list[str] = []
        if self.attacked.errors:
            found.append(f"{self.attacked.errors} requests failed")
        if self.leases_lost:
            found.append(f"{self.leases_lost} leases lost")
        if self.log_lines > self.lines_allowed:
            found.append(f"{self.log_lines} lines in the log")
        if self.attacked.memory - self.before > MEMORY_MAX:
            found.append(f"memory +{(self.attacked.memory - self.before) // MB} MB")
        if self.after - self.before > MEMORY_MAX:
            found.append(f"memory still +{(self.after - self.before) // MB} MB")
        return found

    def row(self) -> str:
        grown, kept = (round((size - self.before) / MB) for size in (self.attacked.memory, self.after))
        sent = ", ".join(f"{number:,} {what}" for what, number in self.counts.items())
        verdict = "held" if not self.problems else "; ".join(self.problems)
        return (
            f"| {self.name} | {self.quiet.p99 * 1000:.0f} | {self.attacked.p99 * 1000:.0f} "
            f"| {len(self.attacked.seconds)} / {self.attacked.errors} | {self.leases_lost} | {grown:+} | {kept:+} "
            f"| {self.log_lines} | {sent} | {verdict} |"
        )


HEAD = (
    "| attack | p99 quiet, ms | p99 attacked, ms | answers / failures | leases lost | peak, MB | after, MB | log lines "
    "| sent | |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


async def measure(http: aiohttp.ClientSession, running: Up, seconds: float) -> Measured:
    """Ask again and again for that long."""
    found, process = Measured(), psutil.Process(running.pid)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(20), http.post(running.graphql_url, json=QUERY) as response:
                body: Any = await response.json()
                found.errors += response.status != 200 or "errors" in body
        except (aiohttp.ClientError, TimeoutError):
            found.errors += 1
        found.seconds.append(time.perf_counter() - began)
        found.memory = max(found.memory, process.memory_info().rss)
        await asyncio.sleep(PAUSE)
    return found


async def attacked(
    running: Up, http: aiohttp.ClientSession, name: str, token: str, *, seconds: float, quiet_seconds: float = 10.0
) -> Verdict:
    """Measure in quiet, then under the attack, then wait until memory is back."""
    process = psutil.Process(running.pid)
    quiet = await measure(http, running, quiet_seconds)
    before, said = process.memory_info().rss, running.said
    host, port = running.graphql_url.split("/")[2].split(":")
    attacker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.flood.attacks", name, host, port, str(seconds),
        env={**os.environ, "TOKEN": token}, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert attacker.stdout is not None
    assert await asyncio.wait_for(attacker.stdout.readline(), 30) == b"begun\n"
    during = await measure(http, running, seconds + 0.1)
    printed, _ = await asyncio.wait_for(attacker.communicate(), 30)
    assert attacker.returncode == 0
    with contextlib.suppress(AssertionError, TimeoutError):
        await until(lambda: process.memory_info().rss - before <= MEMORY_MAX, within=RECOVERY)
    after = process.memory_info().rss
    new = running.said[len(said) :]
    lost, lines, allowed = new.count("lease.lost"), new.count("\n"), LOG_LINES_MAX * max(seconds, 5)
    return Verdict(name, quiet, during, before, after, lost, lines, orjson.loads(printed), allowed)


async def attacker_token(http: aiohttp.ClientSession, running: Up) -> str:
    async with http.post(running.graphql_url, json={"query": TOKEN}) as response:
        return (await response.json())["data"]["createToken"]["secret"]


async def flood(names: list[str], seconds: float) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        # The default limits, but for the healthy client's own pace.
        env = {"REQUEST_RATE_LIMIT": "0", "REQUEST_RATE_LIMIT_PER_PROJECT": "0", "LOG_FORMAT": "json"}
        async with up(Path(folder) / "home", env=env) as running:
            headers = {"authorization": f"Bearer {running.token}"}
            async with aiohttp.ClientSession(headers=headers) as http:
                token = await attacker_token(http, running)
                await measure(http, running, 5)  # warm
                say(HEAD)
                verdicts: list[Verdict] = []
                for name in names:
                    verdicts.append(await attacked(running, http, name, token, seconds=seconds))
                    say(verdicts[-1].row())
    return not any(each.problems for each in verdicts)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument("--only", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    given = options.parse_args()
    sys.exit(0 if asyncio.run(flood(given.only, given.seconds)) else 1)
