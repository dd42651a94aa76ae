"""Whoever judges must be able to find somebody guilty."""

from pathlib import Path

import pytest

from tests.chaos.member import Life, Member
from tests.chaos.verdict import INVARIANTS, Verdict, overlaps


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member("worker 1", (), {}, tmp_path / "member")


def written(tmp_path: Path, *lines: str) -> Path:
    runs = tmp_path / "runs"
    runs.write_text("".join(f"{line}\n" for line in lines))
    return runs


ONE_AFTER_THE_OTHER = (
    "1 7 11 KIND 10.0 begins",
    "1 7 11 KIND 12.0 ends",
    "2 7 12 KIND 12.5 begins",
    "2 7 12 KIND 13.0 ends",
)
AT_ONCE = ("1 7 11 KIND 10.0 begins", "2 7 12 KIND 11.0 begins", "1 7 11 KIND 12.0 ends", "2 7 12 KIND 13.0 ends")


def test_runs_of_a_job_one_after_the_other_are_fine(tmp_path: Path, member: Member):
    assert overlaps(written(tmp_path, *ONE_AFTER_THE_OTHER), [member]) == (2, [])


def test_two_runs_of_one_job_at_once_are_noticed(tmp_path: Path, member: Member):
    many, wrong = overlaps(written(tmp_path, *AT_ONCE), [member])

    assert (many, wrong) == (2, ["job 7 ran in 1 until 12.000 and in 2 from 11.000"])


def test_runs_of_two_jobs_at_once_are_fine(tmp_path: Path, member: Member):
    lines = [line.replace("2 7 ", "2 8 ") for line in AT_ONCE]

    assert overlaps(written(tmp_path, *lines), [member]) == (2, [])


def test_a_frozen_process_and_one_that_got_no_time_run_nothing(tmp_path: Path, member: Member):
    member.frozen.append((1, 10.5, 11.9))
    assert overlaps(written(tmp_path, *AT_ONCE), [member]) == (2, [])

    member.frozen.clear()
    stalled = ("1 0 0 STALL 10.5 begins", "1 0 0 STALL 11.9 ends")
    assert overlaps(written(tmp_path, *AT_ONCE, *stalled), [member]) == (2, [])


def test_another_process_that_was_frozen_is_no_excuse(tmp_path: Path, member: Member):
    member.frozen.append((2, 10.5, 11.9))

    assert len(overlaps(written(tmp_path, *AT_ONCE), [member])[1]) == 1


@pytest.mark.parametrize(("died", "wrong"), [(10.5, 0), (11.5, 1)])
def test_a_run_that_never_ended_lasted_as_long_as_its_process(tmp_path: Path, member: Member, died: float, wrong: int):
    member.lives.append(Life(1, 5.0, died))
    runs = written(tmp_path, "1 7 11 KIND 10.0 begins", "2 7 12 KIND 11.0 begins", "2 7 12 KIND 13.0 ends")

    assert len(overlaps(runs, [member])[1]) == wrong


def test_one_violation_or_a_broken_harness_is_enough():
    verdict = Verdict()
    for number in INVARIANTS:
        verdict.check(number, 10, [])
    assert verdict.is_good

    verdict.check(3, 1, ["a watcher missed an event"])
    assert not verdict.is_good

    broken = Verdict(broken=["a fault could not be carried out"])
    assert not broken.is_good
