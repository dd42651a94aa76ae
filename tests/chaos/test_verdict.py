"""The checks of a chaos run detect violations."""

from pathlib import Path

import pytest

from tests.chaos import recoveries
from tests.chaos.charges import Removal, Span, burn_problems, ledger_problems
from tests.chaos.event_order import order_problems, version_problems
from tests.chaos.machine_watch import Differences, Sample
from tests.chaos.managed_process import Life, ManagedProcess
from tests.chaos.own_faults import Failure, own_faults
from tests.chaos.verdict import INVARIANTS, Verdict, overlaps


@pytest.fixture
def process(tmp_path: Path) -> ManagedProcess:
    return ManagedProcess("worker 1", (), {}, tmp_path / "process")


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


def test_runs_of_a_job_one_after_the_other_are_fine(tmp_path: Path, process: ManagedProcess):
    assert overlaps(written(tmp_path, *ONE_AFTER_THE_OTHER), [process]) == (2, [])


def test_two_runs_of_one_job_at_once_are_noticed(tmp_path: Path, process: ManagedProcess):
    many, wrong = overlaps(written(tmp_path, *AT_ONCE), [process])

    assert (many, wrong) == (2, ["job 7 ran in 1 until 12.000 and in 2 from 11.000"])


def test_runs_of_two_jobs_at_once_are_fine(tmp_path: Path, process: ManagedProcess):
    lines = [line.replace("2 7 ", "2 8 ") for line in AT_ONCE]

    assert overlaps(written(tmp_path, *lines), [process]) == (2, [])


def test_a_killed_process_ran_until_its_own_death_if_its_pid_was_used_again(tmp_path: Path, process: ManagedProcess):
    process.lives += [Life(1, 5.0, 10.5), Life(1, 20.0, 90.0)]
    killed = ("1 7 11 KIND 10.0 begins", "2 7 12 KIND 11.0 begins", "2 7 12 KIND 13.0 ends")

    assert overlaps(written(tmp_path, *killed), [process]) == (2, [])


def test_a_frozen_process_and_one_that_got_no_time_run_nothing(tmp_path: Path, process: ManagedProcess):
    process.frozen.append((1, 10.5, 11.9))
    assert overlaps(written(tmp_path, *AT_ONCE), [process]) == (2, [])

    process.frozen.clear()
    stalled = ("1 0 0 STALL 10.5 begins", "1 0 0 STALL 11.9 ends")
    assert overlaps(written(tmp_path, *AT_ONCE, *stalled), [process]) == (2, [])


def test_a_process_that_was_frozen_long_before_is_not_excused(tmp_path: Path, process: ManagedProcess):
    process.frozen.append((1, 10.5, 11.9))
    lines = [line.replace("12.0", "16.0").replace("11.0", "15.9").replace("13.0", "17.0") for line in AT_ONCE]

    assert len(overlaps(written(tmp_path, *sorted(lines, key=lambda line: float(line.split()[4]))), [process])[1]) == 1


def test_another_process_that_was_frozen_is_no_excuse(tmp_path: Path, process: ManagedProcess):
    process.frozen.append((2, 10.5, 11.9))

    assert len(overlaps(written(tmp_path, *AT_ONCE), [process])[1]) == 1


@pytest.mark.parametrize(("died", "wrong"), [(10.5, 0), (11.5, 1)])
def test_a_run_that_never_ended_lasted_as_long_as_its_process(
    tmp_path: Path, process: ManagedProcess, died: float, wrong: int
):
    process.lives.append(Life(1, 5.0, died))
    runs = written(tmp_path, "1 7 11 KIND 10.0 begins", "2 7 12 KIND 11.0 begins", "2 7 12 KIND 13.0 ends")

    assert len(overlaps(runs, [process])[1]) == wrong


def test_one_violation_or_a_broken_harness_is_enough():
    verdict = Verdict()
    for number in INVARIANTS:
        verdict.check(number, 10, [])
    assert verdict.is_good

    verdict.check(3, 1, ["a subscriber missed an event"])
    assert not verdict.is_good

    broken = Verdict(broken=["a fault could not be carried out"])
    assert not broken.is_good


def test_an_event_that_is_missing_or_out_of_order_is_noticed():
    rows = {"a": 3}
    assert version_problems("instance", [("a", 1), ("b", 7), ("a", 2), ("a", 2), ("a", 3)], rows) == []
    assert version_problems("instance", [("a", 1), ("a", 3)], rows) == [
        "no event tells versions [2] of instance a, which has version 3"
    ]
    assert version_problems("instance", [("a", 2), ("a", 1), ("a", 3)], rows) == [
        "the events of instance a come in the order of versions [2, 1, 3]"
    ]


def test_webhooks_that_overtake_each_other_are_noticed():
    sent = [("m1", "a"), ("m2", "a"), ("m3", "b")]
    assert order_problems(sent, ["m3", "m1", "m2"]) == []
    assert order_problems(sent, ["m2", "m3", "m1"]) == [
        "webhooks of instance a arrived in another order than their events"
    ]


def machine(id: str, marker: str, status: str = "running") -> dict[str, str]:
    return {"id": id, "name": f"r-c1-1-{marker}", "status": status}


M1, M2, M3 = (f"pl{number:020x}" for number in (1, 2, 3))
OWNERS = {M1: "a", M2: "a", M3: "a"}


def test_a_third_machine_and_one_that_was_replaced_are_noticed():
    two = [machine("m1", M1), machine("m2", M2)]
    leaving = machine("m3", M3, "toRemove")
    assert recoveries.crowds([*two, leaving, machine("m4", "plainly")], OWNERS, {"m3"}) == (1, [])
    assert recoveries.crowds([*two, machine("m3", M3)], OWNERS, set()) == (1, ["instance a has machines m1, m2, m3"])
    assert recoveries.crowds(two, OWNERS, {"m1"}) == (1, ["machine m1 of instance a was replaced and is still there"])


def test_a_machine_that_does_not_serve_at_the_end_is_noticed():
    assert recoveries.left_over([machine("m1", M1, "removing"), machine("m2", M2)], OWNERS, {"a": "m2"}) == []
    assert recoveries.left_over([machine("m1", M1), machine("m2", M2)], OWNERS, {"a": "m2"}) == [
        "machine m1 does not serve instance a, which has m2"
    ]


def test_a_machine_that_serves_again_after_another_one_is_noticed():
    assert recoveries.returns([("a", "m1"), ("a", "m1"), ("a", "m2"), ("b", "m1")]) == []
    assert recoveries.returns([("a", "m1"), ("a", "m2"), ("a", "m1")]) == ["instance a was served by m1, m2, m1"]


@pytest.mark.parametrize(
    ("failure", "is_ours"),
    [
        (Failure("op_1", "CREATE", "IMAGE_PULL_FAILED", "no such image", 1.0), False),
        (Failure("op_1", "CREATE", "NETWORK_ERROR", "away", 25.0), False),
        (Failure("op_1", "CREATE", "NETWORK_ERROR", "away", 24.9), True),
        (Failure("op_1", "STOP", "INTERNAL_ERROR", "KeyError", 90.0), True),
        (Failure("op_1", "START", "GONE_AT_PROVIDER", "gone", 90.0), True),
        (Failure("op_1", "CREATE", "PROVIDER_AUTH_FAILED", "wrong key", 90.0), True),
        (Failure("op_1", "CREATE", "READY_TIMEOUT", "still pulling", 90.0), True),
        (Failure("op_1", "DELETE", "NETWORK_ERROR", "away", 90.0), True),
        (Failure("op_1", "CREATE", "CANCELLED", "by its job", 1.0), True),
        (Failure("op_2", "CREATE", "CANCELLED", "by its job", 1.0), False),
    ],
)
def test_only_the_provider_and_a_caller_excuse_a_failed_operation(failure: Failure, is_ours: bool):
    assert bool(own_faults([failure], cancelled={"op_2"}, provider_max_wait=25.0)) is is_ours


def test_a_difference_counts_once_it_has_outlived_a_whole_reconcile():
    found = Differences()
    found.add(Sample(1.0, 1.5, 3, ["machine m1 (a-pl00, creating) is not in fleet"]), [])
    found.add(Sample(4.0, 4.5, 3, ["machine m1 (a-pl00, running) is not in fleet"]), [(1.4, 2.0), (3.0, 4.1)])
    assert found.violations == {}  # one began before it was seen, the other ended after the sample began

    found.add(Sample(6.0, 6.5, 3, ["machine m1 (a-pl00, running) is not in fleet"]), [(3.0, 4.1)])
    assert list(found.violations.values()) == ["machine m1 (a-pl00, running) is not in fleet"]


def test_a_difference_that_was_gone_meanwhile_is_a_new_one():
    found = Differences()
    found.add(Sample(1.0, 1.5, 3, ["machine m1 (a-pl00, running) is not in fleet"]), [])
    found.add(Sample(2.0, 2.5, 3, []), [])
    found.add(Sample(6.0, 6.5, 3, ["machine m1 (a-pl00, running) is not in fleet"]), [(3.0, 4.0)])

    assert found.violations == {}


@pytest.mark.parametrize(
    ("paid", "ledger", "is_wrong"),
    [
        ([(10.0, 110.0)], [(9.0, 110.0)], False),
        ([(10.0, 110.0)], [(8.9, 110.0)], True),
        ([(10.0, 110.0)], [(10.4, 109.0)], False),  # the image pull, and whole seconds
        ([(10.0, 110.0)], [(10.4, 108.9)], True),
        ([(10.0, 110.0)], [(10.0, 50.0), (50.0, 110.0)], False),  # cut
        ([(10.0, 20.0), (30.0, 40.0)], [(10.0, 41.9)], True),
        ([(10.0, 20.0), (30.0, 40.0)], [(9.0, 20.0), (29.0, 40.0)], False),
        ([(10.0, None)], [(10.0, None)], False),
        ([(10.0, None)], [(10.0, 198.0)], True),
        ([(10.0, 20.0)], [], True),
        ([], [(10.0, 20.0)], True),
        ([(10.0, 10.5)], [], False),
    ],
)
def test_ledger_that_differs_from_what_was_charged_is_noticed(paid: list[Span], ledger: list[Span], is_wrong: bool):
    wrong, _ = ledger_problems({"m1": paid}, {"m1": ledger}, at=200.0)

    assert bool(wrong) is is_wrong


@pytest.mark.parametrize(
    ("removed", "ended", "is_wrong"),
    [
        (112.8, 113.7, False),
        (112.8, 114.0, True),
        (112.8, 110.0, False),  # it was stopped just before
        (112.8, 111.2, True),
        (108.0, 108.0, True),  # before it was sent
        (114.0, 114.0, True),  # longer than a response takes
        (30.0, 110.0, False),  # it was stopped before
    ],
)
def test_a_machine_counts_until_the_response_to_its_removal_and_not_longer(
    removed: float, ended: float, is_wrong: bool
):
    assert is_noticed(ended, Removal(removed, has_response=True)) is is_wrong


@pytest.mark.parametrize(
    ("sent", "ended", "is_wrong"),
    [(106.0, 106.0, False), (106.0, 110.0, False), (106.0, 108.0, True), (104.0, 104.0, True), (112.0, 112.0, True)],
)
def test_a_machine_counts_until_a_removal_was_sent_that_had_no_response(sent: float, ended: float, is_wrong: bool):
    assert is_noticed(ended, Removal(sent, has_response=False)) is is_wrong


def is_noticed(ended: float, removal: Removal) -> bool:
    """With a charge that ended at 110."""
    paid, ledger = {"m1": [(10.0, 110.0)]}, {"m1": [(10.0, ended)]}
    wrong, _ = ledger_problems(paid, ledger, at=200.0, removals={"m1": removal})
    return bool(wrong)


def test_machine_that_counts_at_another_price_than_it_is_charged_is_noticed():
    assert burn_problems({"m1": 36_000, "m2": 5}, {"m1": 36_000, "m3": 7}) == [
        "machine m2 is charged at 5 and counts at 0 per hour",
        "machine m3 is charged at 0 and counts at 7 per hour",
    ]


def test_a_wrong_burn_rate_counts_once_it_has_outlived_a_whole_reconcile():
    found = Differences()
    wrong = ["machine m2 is charged at 5 and counts at 0 per hour"]
    found.add(Sample(1.0, 1.5, 3, wrong), [])
    assert found.violations == {}

    found.add(Sample(6.0, 6.5, 3, wrong), [(3.0, 4.1)])
    assert list(found.violations) == wrong
