"""`make bench` reads the figures that benches print, and notices those that got worse."""

import re
from typing import Any

from bench.all import BENCHES, page_of, read_figures, regressions
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
    return {"bench": "create", "figures": dict(zip(NAMES, (*values, 0.86, 0.99), strict=True))}


def test_figures_are_read_from_what_a_bench_prints():
    assert read_figures(CREATE, BENCHES["create"].figures) == entry(0.32, 0.25, 2.2)["figures"]
    assert read_figures("nothing", BENCHES["create"].figures) == dict.fromkeys(NAMES)


def test_a_figure_that_is_a_fifth_worse_than_usual_is_a_regression():
    history = [entry(0.5, 0.5, 2.0), entry(9.0, 0.1, 2.0), entry(0.5, 0.5, 2.0)]

    assert regressions(entry(0.41, 0.41, 2.39), history) == []
    assert regressions(entry(0.39, 0.5, 2.41), history) == [
        "WORSE   create, one at once, of bare asyncpg: 0.39 ratio, usually 0.5",
        "WORSE   create, CPU of the API per create: 2.41 ms, usually 2",
    ]


def test_a_figure_that_is_not_printed_is_reported_and_the_first_run_is_not_compared():
    assert regressions(entry(0.1, None, 9.0), []) == ["MISSING create, 32 at once, of bare asyncpg"]


def test_every_bench_has_a_command_of_its_own():
    targets = set(re.findall(r"(?m)^bench-(\w+):", (ROOT / "Makefile").read_text()))
    assert BENCHES.keys() == targets
    assert "| `make bench-idle` | CPU when idle | **not measured** |" in page_of({})


def test_the_page_says_which_bench_missed_its_own_limit():
    run = {**entry(0.32, 0.25, 2.2), "exit_code": 1, "at": "2026-11-18T23:00:00+00:00", "commit": "abc", "took_s": 90}
    assert "| 0.32 ratio, a limit of the bench was missed | 2026-11-18 | abc | 90 s |" in page_of({"create": run})
    assert "| 0.32 ratio | 2026-11-18 | abc | 90 s |" in page_of({"create": {**run, "exit_code": 0}})


def test_calls_of_a_minute_are_the_most_in_any_minute_and_not_on_average():
    assert most_within([0.0, 1.0, 59.0, 60.0, 61.0], 60.0) == 3
    assert most_within([0.0, 60.0, 120.0], 60.0) == 1
    assert most_within([], 60.0) == 0
