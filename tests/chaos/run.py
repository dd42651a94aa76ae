"""Injects random faults under load, from a seed; then checks from outside what must hold.

    python -m tests.chaos.run                                30 minutes
    python -m tests.chaos.run --minutes 3 --seed 7           a short run, and the same faults at the same times again
    python -m tests.chaos.run --seed 7 --minutes 3 --plan    only what would go wrong when

Ctrl-C ends the faults early; the run is judged all the same.

It prints a table: what must hold, how much was checked, how many faults were injected, how many violations. The exit
code is 1 if there was any violation.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from server.db.database import Database
from tests.chaos import lifetimes
from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.faulty_receiver import FaultyReceiver, receiving
from tests.chaos.hostile_clients import HostileClient
from tests.chaos.injector import FaultInjector
from tests.chaos.load import Load, RetryingCaller
from tests.chaos.machine_watch import MachineWatch
from tests.chaos.schedule import APIS, Fault, dialect_of, each_kind_once, schedule, with_the_provider_away
from tests.chaos.subscribers import Subscriber, SubscriberPool
from tests.chaos.verdict import INVARIANTS, Run, Verdict, come_to_rest, judge
from tests.support.cursors import head_cursor

CALLERS, SUBSCRIBERS = 6, 8
CUT_EVERY = 6.0  # seconds; mean lifetime of a subscriber's connection
FAULT_EVERY = 2.8  # seconds
# The run in the tests: each kind of fault once. An outage can't last longer than the provider is waited for.
SHORT_SECONDS, SHORT_PACE = 45.0, 1.5
# The longer runs have outages that are longer than this.
PROVIDER_MAX_WAIT = 25.0  # seconds
ROTATE = "mutation { rotateWebhookSecret { secret errors { code } } }"

Say = Callable[[str], None]


def _quiet(_: str) -> None: ...


async def chaos(
    seed: int,
    *,
    seconds: float,
    every: float = FAULT_EVERY,
    is_provider_away: bool = False,
    has_each_kind_once: bool = False,
    pace: float = 1.0,
    say: Say = _quiet,
    keep: Path | None = None,
    stops_early: bool = False,
    provider_max_wait: float = PROVIDER_MAX_WAIT,
) -> tuple[Verdict, list[str]]:
    """Run it all; the verdict, and the lines to print. `keep` is where logs and tables of a bad run are left."""
    began = time.monotonic()
    verdict = Verdict()
    settings: dict[str, Any] = {"provider_max_wait": provider_max_wait, "dialect": dialect_of(seed)}
    async with running_cluster(seed, **settings) as stage, receiving() as receiver:
        run = await prepare_run(stage, receiver, seed, pace=pace, say=say)
        if has_each_kind_once:
            faults = each_kind_once(seed, seconds=seconds, without=stage.cannot)
        else:
            faults = schedule(seed, seconds=seconds, every=every, without=stage.cannot)
        if is_provider_away:
            faults = with_the_provider_away(faults, seconds=seconds)
        memory = asyncio.create_task(_measure(stage))
        callers = [asyncio.create_task(run.load.run(number)) for number in range(CALLERS)]
        others = [
            asyncio.create_task(run.stranger.run()),
            asyncio.create_task(run.stranger.watch(run.subscribers[0].start)),
        ]
        sampling = asyncio.create_task(run.machines.run())
        availability = asyncio.create_task(run.breaking.available.watch(stage))
        watching = [asyncio.create_task(run.watching.follow(subscriber)) for subscriber in run.subscribers]
        for number in (signal.SIGINT, signal.SIGTERM) if stops_early else ():
            asyncio.get_running_loop().add_signal_handler(number, run.breaking.is_enough.set)
        try:
            await run.breaking.run(faults)
            run.load.is_over.set()
            await asyncio.gather(*callers)
            say("everything is repaired; waiting for all work to end")
            await come_to_rest(run, verdict)
            sampling.cancel()
            await judge(run, verdict)
        finally:
            tasks = [memory, sampling, availability, *callers, *others, *watching]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for task in tasks:
                if not task.cancelled() and task.exception() is not None:
                    verdict.broken.append(f"a part of the harness broke: {task.exception()!r}")
            verdict.broken += run.breaking.failed
        lines = report(run, verdict, faults, seed=seed, seconds=time.monotonic() - began)
        if not verdict.is_good and keep is not None:
            await _keep(stage, keep)
            lines.append(f"logs are in {keep}")
    return verdict, lines


async def short_chaos(seed: int, **options: Any) -> tuple[Verdict, list[str]]:
    """Each kind of fault once within three quarters of a minute; no operation may fail for an outage."""
    return await chaos(
        seed,
        seconds=SHORT_SECONDS,
        pace=SHORT_PACE,
        has_each_kind_once=True,
        provider_max_wait=3600.0,
        **options,
    )


async def prepare_run(
    stage: Cluster, receiver: FaultyReceiver, seed: int, *, pace: float = 1.0, say: Say = _quiet
) -> Run:
    """All parts of a run, ready to begin."""
    load = Load(stage.addresses, stage.secrets.token, seed=seed, receiver_url=receiver.url, pace=pace)
    await _plant(stage, load, receiver)
    async with stage.connection() as connection:
        await connection.execute(lifetimes.AUDIT)
    database = Database(stage.url, pool_size=1)
    start = await head_cursor(database)
    await database.close()
    watching = SubscriberPool(
        stage.secrets.token,
        [stage.ports[name] for name in APIS],
        random.Random(f"{seed}:watchers"),
        Counter(),
        load.is_over,
        cut_every=CUT_EVERY,
    )
    return Run(
        stage=stage,
        load=load,
        breaking=FaultInjector(stage, receiver, start, say=say),
        watching=watching,
        subscribers=[Subscriber(number, start, cursor=start) for number in range(SUBSCRIBERS)],
        receiver=receiver,
        stranger=HostileClient(stage.addresses, stage.secrets.stranger, load.accounts, seed=seed),
        machines=MachineWatch(stage),
    )


async def _plant(stage: Cluster, load: Load, receiver: FaultyReceiver) -> None:
    """The secret that webhooks are signed with, and a registry's password at the provider."""
    caller = RetryingCaller(stage.addresses, stage.secrets.token, load.accounts, random.Random(0))
    try:
        answer = await caller.ask(ROTATE, {})
        assert answer is not None
        receiver.secret = stage.secrets.webhook = answer.payload["rotateWebhookSecret"]["secret"]
    finally:
        await caller.close()
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{stage.simulator_url}/gpu-instance/openapi/v1/repository/auth/save",
            json={"name": "registry.example", "username": "robot", "password": stage.secrets.registry_password},
            headers={"authorization": f"Bearer {stage.secrets.novita_key}"},
        ) as response,
    ):
        response.raise_for_status()


async def _measure(stage: Cluster) -> None:
    while True:
        for process in stage.processes.values():
            process.measure()
        await asyncio.sleep(0.5)


def report(run: Run, verdict: Verdict, faults: list[Fault], *, seed: int, seconds: float) -> list[str]:
    """The table, and below it what happened."""
    injected = run.breaking.injected
    accounts, stage = run.load.accounts, run.stage
    lines = [
        f"seed {seed}, {seconds / 60:.1f} minutes, {injected.total()} faults",
        f"dialect of the provider: {', '.join(f'{name} {value}' for name, value in stage.dialect.items()) or 'usual'}",
        "",
        f"{'':3} {'what must hold':48} {'checked':>10} {'faults':>7} {'violations':>11}",
    ]
    for number, words in INVARIANTS.items():
        wrong = len(verdict.violations[number])
        lines.append(f"{number:3} {words:48} {verdict.checked[number]:>10,} {injected.total():>7} {wrong:>11}")
    lines += ["", "faults"]
    lines += [f"  {kind:30} {many:>6}" for kind, many in sorted(injected.items())]
    if stage.cannot:
        lines.append(f"  left out, for want of means: {', '.join(sorted(stage.cannot))}")
    lines += ["", "load"]
    lines += [f"  {name:46} {many:>7,}" for name, many in sorted(accounts.counts.items())]
    lines += [f"  refused as {code:35} {many:>7,}" for code, many in sorted(accounts.codes.items())]
    lines += [f"  {name:46} {many:>7,}" for name, many in sorted(run.watching.counts.items())]
    lines.append(f"  {'farewells with 1012 on SIGTERM':46} {run.breaking.farewells:>7,}")
    lines.append(f"  {'webhook messages received':46} {run.receiver.taken.total():>7,}")
    for process in stage.processes.values():
        words = f"{process.name}: processes, and the most memory of one"
        lines.append(f"  {words:46} {len(process.lives) + 1:>7,} {process.peak_bytes / 2**20:>6.0f} MB")
    lines += [f"  {note}" for note in verdict.notes]
    lines += [f"BROKEN: {each}" for each in verdict.broken]
    for number, wrong in sorted(verdict.violations.items()):
        lines += [f"VIOLATION of {number}: {each}" for each in wrong[:20]]
    return lines


async def _keep(stage: Cluster, keep: Path) -> None:
    """What is needed to find out why."""
    keep.mkdir(parents=True, exist_ok=True)
    for name, process in stage.processes.items():
        with contextlib.suppress(OSError):
            shutil.copy(process.log, keep / f"{name.replace(' ', '-')}.log")
    for name in ("runs", "simulator.log", "postgres/postgres.log"):
        with contextlib.suppress(OSError):
            shutil.copy(stage.home / name, keep / Path(name).name)
    async with stage.connection() as connection:
        for table in (
            "instance",
            "operation",
            "attempt",
            "event",
            "job",
            "job_history",
            "delivery",
            "delivery_attempt",
            "machine",
            "cost_entry",
        ):
            rows = await connection.fetch(f'SELECT to_jsonb(t)::text FROM "{table}" AS t')
            (keep / f"{table}.jsonl").write_text("\n".join(row[0] for row in rows))
    bills = await stage.control("bills")
    (keep / "bills.json").write_text(json.dumps(bills))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--every", type=float, default=FAULT_EVERY, help="seconds between two faults, on average")
    parser.add_argument("--pace", type=float, default=1.0, help="factor for the pauses between requests of a caller")
    parser.add_argument("--provider-away", action="store_true", help="all the time, beside what else goes wrong")
    parser.add_argument("--short", action="store_true", help="each kind of fault once in 45 seconds, as in the tests")
    parser.add_argument("--plan", action="store_true", help="print the schedule and do nothing")
    given = parser.parse_args()
    if given.plan:
        faults = schedule(given.seed, seconds=given.minutes * 60, every=given.every)
        sys.stdout.write("\n".join(map(str, faults)) + "\n")
        return 0
    began = time.monotonic()

    def say(words: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - began:6.1f}] {words}\n")
        sys.stdout.flush()

    keep = Path(tempfile.gettempdir()) / f"pilotlight-chaos-{given.seed}"
    say(f"seed {given.seed}")
    if given.short:
        running = short_chaos(given.seed, say=say, keep=keep, stops_early=True)
    else:
        running = chaos(
            given.seed,
            seconds=given.minutes * 60,
            every=given.every,
            is_provider_away=given.provider_away,
            pace=given.pace,
            say=say,
            keep=keep,
            stops_early=True,
        )
    verdict, lines = asyncio.run(running)
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
