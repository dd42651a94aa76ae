"""Every kind of fault once, within three quarters of a minute.

`make chaos-short` takes two minutes with random faults, `make chaos` half an hour.
"""

from pathlib import Path

import pytest

from tests.chaos.run import SHORT_SECONDS, short_chaos
from tests.chaos.schedule import LONG_KINDS, PROCESSES, SHORT_PROVIDER, WEIGHTS, each_kind_once, schedule
from tests.chaos.verdict import INVARIANTS

SEED = 1  # with a lost response of the provider and a silent network to the database


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_invariants_hold_under_every_kind_of_fault(tmp_path: Path):
    verdict, lines = await short_chaos(SEED, keep=tmp_path / "kept")

    assert verdict.is_good, "\n".join(lines)
    checked = {number for number in INVARIANTS if verdict.checked[number]}
    assert checked == set(INVARIANTS), "\n".join(lines)


def test_the_short_schedule_has_each_kind_of_fault_and_more_of_the_providers():
    faults = each_kind_once(SEED, seconds=SHORT_SECONDS)

    kinds = [*sorted(set(WEIGHTS) - LONG_KINDS), *["provider faults"] * len(SHORT_PROVIDER)]
    kinds.append("machines reclaimed")  # a second time, when there are other machines
    assert sorted(fault.kind for fault in faults) == sorted(kinds)
    assert 0 < faults[0].at < faults[-1].at < SHORT_SECONDS


def test_a_seed_gives_the_same_faults_at_the_same_times_again():
    assert schedule(7, seconds=600, every=2.8) == schedule(7, seconds=600, every=2.8)
    assert schedule(7, seconds=600, every=2.8) != schedule(8, seconds=600, every=2.8)


def test_leaving_out_a_kind_does_not_change_the_other_faults():
    everything = schedule(7, seconds=600, every=2.8)
    less = schedule(7, seconds=600, every=2.8, without=frozenset({"database disk full"}))

    assert less == [fault for fault in everything if fault.kind != "database disk full"]


def test_half_an_hour_has_every_kind_of_fault_and_more_than_five_hundred_of_them():
    faults = schedule(7, seconds=1800, every=2.8)

    assert len(faults) > 500
    assert {fault.kind for fault in faults} == set(WEIGHTS)
    assert {fault.victim for fault in faults if fault.victim} == set(PROCESSES)
