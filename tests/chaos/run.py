"""Everything is broken on purpose, at random from a seed, under load; then what must hold is looked at from outside.

    python -m tests.chaos.run                                30 minutes
    python -m tests.chaos.run --minutes 3 --seed 7           a short run, and the same faults at the same times again
    python -m tests.chaos.run --seed 7 --minutes 3 --plan    only what would go wrong when

Ctrl-C ends the breaking early; what was broken until then is judged all the same.

It prints a table: what must hold, how much was looked at, how many faults were injected, how many violations. The exit
code is 1 if there was any.
"""

import argparse
import asyncio
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import aiohttp

from server.db.engine import Database
from server.events.replay import cursor_now
from tests.chaos.breaking import Breaking
from tests.chaos.load import Caller, Load
from tests.chaos.receiver import Receiver, receiving
from tests.chaos.schedule import APIS, Fault, schedule, with_the_provider_away
from tests.chaos.stage import Stage, set_up
from tests.chaos.strangers import Stranger
from tests.chaos.verdict import INVARIANTS, Run, Verdict, come_to_rest, judge
from tests.chaos.watching import Watcher, Watching

CALLERS, WATCHERS = 6, 8
CUT_EVERY = 6.0  # seconds that a watcher's connection lives, or so
FAULT_EVERY = 2.8  # seconds
ROTATE = "mutation { rotateWebhookSecret { secret errors { code } } }"

Say = Callable[[str], None]


def _quiet(_: str) -> None: ...


async def chaos(
    seed: int,
    *,
    seconds: float,
    every: float = FAULT_EVERY,
    is_provider_away: bool = False,
    pace: float = 1.0,
    say: Say = _quiet,
    keep: Path | None = None,
    stops_early: bool = False,
) -> tuple[Verdict, list[str]]:
    """Run it all; the verdict, and the lines to print. `keep` is where logs and tables of a bad run are left."""
    began = time.monotonic()
    verdict = Verdict()
    async with set_up(seed) as stage, receiving() as receiver:
        run = await cast(stage, receiver, seed, pace=pace, say=say)
        faults = schedule(seed, seconds=seconds, every=every, without=stage.cannot)
        if is_provider_away:
            faults = with_the_provider_away(faults, seconds=seconds)
        memory = asyncio.create_task(_measure(stage))
        callers = [asyncio.create_task(run.load.run(number)) for number in range(CALLERS)]
        others = [
            asyncio.create_task(run.stranger.run()),
            asyncio.create_task(run.stranger.watch(run.watchers[0].start)),
        ]
        watching = [asyncio.create_task(run.watching.follow(watcher)) for watcher in run.watchers]
        for number in (signal.SIGINT, signal.SIGTERM) if stops_early else ():
            asyncio.get_running_loop().add_signal_handler(number, run.breaking.is_enough.set)
        try:
            await run.breaking.run(faults)
            run.load.is_over.set()
            await asyncio.gather(*callers)
            say("everything is mended; waiting for all work to end")
            await come_to_rest(run, verdict)
            await judge(run, verdict)
        finally:
            tasks = [memory, *callers, *others, *watching]
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


async def cast(stage: Stage, receiver: Receiver, seed: int, *, pace: float = 1.0, say: Say = _quiet) -> Run:
    """Everybody who takes part, ready to begin."""
    load = Load(stage.addresses, stage.secrets.token, seed=seed, receiver_url=receiver.url, pace=pace)
    await _plant(stage, load, receiver)
    database = Database(stage.url, pool_size=1)
    async with database.read() as session:
        start = str(await cursor_now(session))
    await database.close()
    watching = Watching(
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
        breaking=Breaking(stage, receiver, start, say=say),
        watching=watching,
        watchers=[Watcher(number, start, cursor=start) for number in range(WATCHERS)],
        receiver=receiver,
        stranger=Stranger(stage.addresses, stage.secrets.stranger, load.accounts, seed=seed),
    )


async def _plant(stage: Stage, load: Load, receiver: Receiver) -> None:
    """The secret that webhooks are signed with, and a registry's password at the provider."""
    caller = Caller(stage.addresses, stage.secrets.token, load.accounts, random.Random(0))
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


async def _measure(stage: Stage) -> None:
    while True:
        for member in stage.members.values():
            member.measure()
        await asyncio.sleep(0.5)


def report(run: Run, verdict: Verdict, faults: list[Fault], *, seed: int, seconds: float) -> list[str]:
    """The table, and below it what happened."""
    injected = run.breaking.injected
    accounts, stage = run.load.accounts, run.stage
    lines = [
        f"seed {seed}, {seconds / 60:.1f} minutes, {injected.total()} faults",
        "",
        f"{'':3} {'what must hold':48} {'looked at':>10} {'faults':>7} {'violations':>11}",
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
    for member in stage.members.values():
        words = f"{member.name}: processes, and the most memory of one"
        lines.append(f"  {words:46} {len(member.lives) + 1:>7,} {member.peak_bytes / 2**20:>6.0f} MB")
    lines += [f"  {note}" for note in verdict.notes]
    lines += [f"BROKEN: {each}" for each in verdict.broken]
    for number, wrong in sorted(verdict.violations.items()):
        lines += [f"VIOLATION of {number}: {each}" for each in wrong[:20]]
    return lines


async def _keep(stage: Stage, keep: Path) -> None:
    """What is needed to find out why."""
    keep.mkdir(parents=True, exist_ok=True)
    for name, member in stage.members.items():
        with contextlib.suppress(OSError):
            shutil.copy(member.log, keep / f"{name.replace(' ', '-')}.log")
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
        ):
            rows = await connection.fetch(f'SELECT to_jsonb(t)::text FROM "{table}" AS t')
            (keep / f"{table}.jsonl").write_text("\n".join(row[0] for row in rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--every", type=float, default=FAULT_EVERY, help="seconds between two faults, on average")
    parser.add_argument("--provider-away", action="store_true", help="all the time, beside what else goes wrong")
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
    verdict, lines = asyncio.run(
        chaos(
            given.seed,
            seconds=given.minutes * 60,
            every=given.every,
            is_provider_away=given.provider_away,
            say=say,
            keep=keep,
            stops_early=True,
        )
    )
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
