"""`make bench` reads the figures that benches print, and notices those that got worse."""

import re
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.all import (
    BENCHES,
    Bench,
    Figure,
    page_of,
    read_figures,
    regressions,
    run,
    run_within,
    summary_of,
    verdict_of,
)
from bench.market import most_within
from tests.support.processes import ROOT

CREATE = """  1 at once: createInstance     80/s   bare asyncpg    261/s   0.32  FAIL (at least 0.5)
             bare asyncpg writing only four of the rows    301/s   0.27
 32 at once: createInstance    155/s   bare asyncpg    560/s   0.25  FAIL (at least 0.6)
             bare asyncpg writing only four of the rows    705/s   0.22
CPU of the API process: 2.2 ms a create
accepted 1,732, on disk 1,732
 32 at once: with a budget 0.86 of the rate without  PASS (at least 0.8; half of 10 rounds 0.84 to 0.91)
 32 at once: beside a server that never asks for budgets 0.99 of the rate without  PASS (at least 0.98; half of 10 \
rounds 0.97 to 1.02)
"""
NAMES = [figure.name for figure in BENCHES["create"].figures]


def entry(*values: float | None) -> dict[str, Any]:
    """Those of budgets are always the same."""
    return {"bench": "create", "form": "short", "figures": dict(zip(NAMES, (*values, 0.86, 0.99), strict=True))}


def test_figures_are_read_from_what_a_bench_prints():
    assert read_figures(CREATE, BENCHES["create"].figures) == entry(0.32, 0.25, 2.2)["figures"]
    assert read_figures(CREATE.replace("FAIL", "PASS"), BENCHES["create"].figures) == entry(0.32, 0.25, 2.2)["figures"]
    assert read_figures("nothing", BENCHES["create"].figures) == dict.fromkeys(NAMES)


def test_a_figure_that_is_a_fifth_worse_than_usual_is_a_regression():
    history = [entry(0.5, 0.5, 2.0), entry(9.0, 0.1, 2.0), entry(0.5, 0.5, 2.0)]

    assert regressions(entry(0.41, 0.41, 2.39), history) == []
    assert regressions(entry(0.39, 0.5, 2.41), history) == [
        "WORSE   create, one at once, of bare asyncpg: 0.39 ratio, usually 0.5",
        "WORSE   create, CPU of the API per create: 2.41 ms, usually 2",
    ]


def test_a_short_run_is_not_compared_with_a_long_one():
    history = [{**entry(0.5, 0.5, 2.0), "form": "long"}]

    assert regressions(entry(0.1, 0.1, 9.0), history) == []


def test_a_figure_that_is_not_printed_is_reported_and_the_first_run_is_not_compared():
    assert regressions(entry(0.1, None, 9.0), []) == ["MISSING create, 32 at once, of bare asyncpg"]


def test_every_bench_has_a_command_of_its_own():
    targets = set(re.findall(r"(?m)^bench-(\w+):", (ROOT / "Makefile").read_text()))
    assert BENCHES.keys() == targets
    assert "| `make bench-idle` | CPU when idle | **not measured** |" in page_of({})


def test_the_page_says_which_bench_kept_its_promises_and_how_it_was_run():
    at = {"at": "2026-11-18T23:00:00+00:00", "commit": "abc", "took_s": 90}
    page = page_of({"create": {**entry(0.32, 0.25, 2.2), **at, "kept": "no"}})

    assert "| `make bench-create` | one at once, of bare asyncpg | 0.32 ratio | no | 2026-11-18 | abc |" in page
    assert "| `make bench-create` | `--seconds 1.5`; `--budget --seconds 0.7` | 90 s |" in page
    assert "| `make bench-client` | none |  |" in page


@pytest.mark.parametrize(
    ("codes", "figure", "is_promise", "kept"),
    [
        ([0, 0], 1.0, True, "yes"),
        ([0, 0], 1.0, False, "none made"),
        ([0, 1], 1.0, True, "no"),
        ([0, 1], None, True, "not finished"),
        ([0, None], 1.0, True, "stopped by its time limit"),
    ],
)
def test_what_became_of_the_promises(codes: list[int | None], figure: float | None, is_promise: bool, kept: str):
    bench = Bench((Figure("it", "", "s"),), is_promise=is_promise)

    assert verdict_of(bench, codes, {"it": figure}) == kept


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_bench_that_hangs_is_stopped_with_all_that_it_started():
    # Both ignore SIGINT.
    printed, code = run_within(["sh", "-c", "trap '' INT; sleep 600 & echo $!; wait"], 4.0, to_end=0.1)

    assert code is None
    deadline = time.monotonic() + 10
    while is_running(int(printed)) and time.monotonic() < deadline:  # it was killed, and is not our child
        time.sleep(0.05)
    assert not is_running(int(printed))


def test_a_bench_that_fails_stops_neither_its_next_run_nor_the_other_benches(tmp_path: Path):
    (tmp_path / "good.json").write_text('{"found": 7}')
    bench = Bench((Figure("it", '"found": ([0-9]+)', "s"),), short=("none.json", "good.json"), module="json.tool")

    entry = run(bench, "json", form="short", limit=60.0, folder=tmp_path)

    assert (entry["exit_codes"][1], entry["kept"], entry["figures"]) == (0, "no", {"it": 7.0})
    assert entry["exit_codes"][0] != 0
    assert summary_of([entry]).splitlines()[1].split() == ["json", f"{entry['took_s']}", "s", "no"]


def test_all_runs_of_a_bench_together_have_one_limit(capsys: pytest.CaptureFixture[str]):
    bench = Bench((Figure("it", "x([0-9]+)", "s"),), short=("--help", "--help"), module="json.tool")

    entry = run(bench, "json", form="short", limit=0.0)

    assert (entry["exit_codes"], entry["kept"], entry["figures"]) == ([None], "stopped by its time limit", {"it": None})
    assert "stopped: all runs of json together have 0 s" in capsys.readouterr().out


def test_calls_of_a_minute_are_the_most_in_any_minute_and_not_on_average():
    assert most_within([0.0, 1.0, 59.0, 60.0, 61.0], 60.0) == 3
    assert most_within([0.0, 60.0, 120.0], 60.0) == 1
    assert most_within([], 60.0) == 0
