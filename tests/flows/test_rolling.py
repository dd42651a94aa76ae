"""All processes are replaced under load, an API and a worker at a time, and no caller or subscriber loses anything."""

import asyncio

import pytest

from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.faulty_receiver import receiving
from tests.chaos.run import prepare_run
from tests.chaos.schedule import APIS, WORKERS
from tests.chaos.verdict import Verdict, come_to_rest, judge
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CALLERS = 3
STOP_SECONDS = 60.0


async def replaced(stage: Cluster, name: str) -> int | None:
    """Stop a process with SIGTERM and wait until its successor is ready; returns the exit code of the first."""
    process = stage.processes[name]
    pid = process.pid
    code = await process.stop_in_order(within=STOP_SECONDS)
    await until(lambda: process.pid != pid and process.is_ready, within=120)
    return code


async def test_a_rolling_restart_fails_no_request_and_loses_no_event():
    verdict = Verdict()
    async with running_cluster(seed=1, can_fill_disk=False) as stage, receiving() as receiver:
        run = await prepare_run(stage, receiver, seed=1)
        callers = [asyncio.create_task(run.load.run(number)) for number in range(CALLERS)]
        watching = [asyncio.create_task(run.watching.follow(subscriber)) for subscriber in run.subscribers]
        accounts = run.load.accounts
        try:
            await until(lambda: accounts.counts["creates accepted"] >= CALLERS, within=120)
            codes = [
                code
                for pair in zip(APIS, WORKERS, strict=True)
                for code in await asyncio.gather(*(replaced(stage, name) for name in pair))
            ]
            before = accounts.counts["creates accepted"]
            await until(lambda: accounts.counts["creates accepted"] > before, within=120)
            run.load.is_over.set()
            await asyncio.gather(*callers)
            await come_to_rest(run, verdict)
            await judge(run, verdict)
        finally:
            for task in (*callers, *watching):
                task.cancel()
            await asyncio.gather(*callers, *watching, return_exceptions=True)

    assert codes == [0, 0, 0, 0]
    assert {number: wrong for number, wrong in verdict.violations.items() if wrong} == {}
    assert verdict.notes[:-5] == []  # the last five say how operations, lifetimes, recoveries and runs ended
    assert verdict.notes[-4] == "failed: none"
    assert accounts.counts["requests given up"] == 0
    assert run.watching.counts["sockets closed with 1012"] >= len(APIS) - 1  # a stream may have been all that was open
    assert verdict.checked[3] >= len(run.subscribers)
