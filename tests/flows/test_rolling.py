"""All processes are replaced one by one under load, and nobody loses anything."""

import asyncio

import pytest

from tests.chaos.receiver import receiving
from tests.chaos.run import cast
from tests.chaos.schedule import APIS, MEMBERS
from tests.chaos.stage import Stage, set_up
from tests.chaos.verdict import Verdict, come_to_rest, judge
from tests.processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CALLERS = 3
STOP_SECONDS = 60.0


async def replaced(stage: Stage, name: str) -> int | None:
    """Stop it in order, wait until the next one does its work; the exit code of the one that went."""
    member = stage.members[name]
    pid = member.pid
    code = await member.stop_in_order(within=STOP_SECONDS)
    await eventually(lambda: member.pid != pid and member.is_ready, within=120)
    return code


async def test_a_rolling_restart_fails_no_request_for_good_and_costs_no_watcher_an_event():
    verdict = Verdict()
    async with set_up(seed=1, can_fill_disk=False) as stage, receiving() as receiver:
        run = await cast(stage, receiver, seed=1)
        callers = [asyncio.create_task(run.load.run(number)) for number in range(CALLERS)]
        watching = [asyncio.create_task(run.watching.follow(watcher)) for watcher in run.watchers]
        accounts = run.load.accounts
        try:
            await eventually(lambda: accounts.counts["creates accepted"] >= CALLERS, within=120)
            codes = [await replaced(stage, name) for name in MEMBERS]
            before = accounts.counts["creates accepted"]
            await eventually(lambda: accounts.counts["creates accepted"] > before, within=120)
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
    assert verdict.notes[:-1] == []  # the last tells how operations ended
    assert accounts.counts["requests given up"] == 0
    assert run.watching.counts["sockets closed with 1012"] >= len(APIS) - 1  # a stream may have been all that was open
    assert verdict.checked[3] >= len(run.watchers)
