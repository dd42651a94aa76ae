"""Runs the benches one after another, and keeps their figures: one JSON file, a history and a page.

    python -m bench.all                      all of them, about three hours
    python -m bench.all --short              without those that take minutes each: about half an hour
    python -m bench.all --only spend,idle    some of them; the figures of the others stay as they are

A figure that is 20 % worse than the median of its last five runs is a regression: it is printed and the exit code is 1.
Most figures are ratios to a peer that runs beside, so that another machine gives about the same.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
REGRESSION = 0.2
COMPARED = 5  # runs
NUMBER = r"([\d,]+\.?\d*)"


@dataclass(frozen=True, slots=True)
class Figure:
    """Found in what a bench prints by `pattern`, whose first group is the number."""

    name: str
    pattern: str
    unit: str
    is_higher_better: bool = False


@dataclass(frozen=True, slots=True)
class Bench:
    """`runs` are the arguments of each run; what they print is read together. The long ones take minutes each."""

    figures: tuple[Figure, ...]
    runs: tuple[tuple[str, ...], ...] = ((),)
    module: str = ""  # where it is not bench.NAME
    is_long: bool = False


BENCHES = {
    "create": Bench(
        (
            Figure("one at once, of bare asyncpg", rf"^ +1 at once: .*/s +{NUMBER}  (?:PASS|FAIL)", "ratio", True),
            Figure("32 at once, of bare asyncpg", rf"^ *32 at once: .*/s +{NUMBER}  (?:PASS|FAIL)", "ratio", True),
            Figure("CPU of the API per create", rf"CPU of the API process: {NUMBER} ms", "ms"),
            Figure("with a budget, of without", rf"with a budget {NUMBER} of the rate without", "ratio", True),
            Figure("without any budget, of not asking", rf"never asks for budgets {NUMBER} of the rate", "ratio", True),
        ),
        runs=((), ("--budget",)),
    ),
    "spend": Bench(
        (
            Figure("a month by day, 1 M entries", rf"groupBy DAY +{NUMBER} ms", "ms"),
            Figure("a month by instance, 1 M entries", rf"groupBy INSTANCE +{NUMBER} ms", "ms"),
            Figure("a month by label, 1 M entries", rf"groupBy LABEL +{NUMBER} ms", "ms"),
        ),
    ),
    "audit": Bench(
        (
            Figure("bytes per record, 1 M", rf"1,000,000 records: {NUMBER} bytes", "bytes"),
            Figure("a page of a project, 1 M", rf"1,000,000 records: .*page of a project {NUMBER} ms", "ms"),
            Figure("a write of 32 records", rf"1,000,000 records: .*write of 32 {NUMBER} ms", "ms"),
        ),
    ),
    "idle": Bench((Figure("CPU when idle", rf"pilotlight +{NUMBER} % of a core", "% of a core"),)),
    "market": Bench(
        (
            Figure("CPU of a worker, 10,000 wait", rf"worker {NUMBER} % of a core", "% of a core"),
            Figure("stock to create call, p99", rf"p99 {NUMBER} s$", "s"),
        ),
    ),
    "client": Bench((Figure("provider client, of bare aiohttp", rf"ratio: +{NUMBER} ", "ratio", True),)),
    "queue": Bench(
        (
            Figure("drain, 10 at once", rf"pilotlight +10 at once +{NUMBER}", "jobs/s", True),
            Figure("drain, 100 at once", rf"pilotlight +10 at once +[\d,]+ +100 at once +{NUMBER}", "jobs/s", True),
            Figure("drain, of PgQueuer's, 100 at once", rf"drain / PgQueuer's, 100 at once: {NUMBER},", "ratio", True),
        ),
    ),
    "observe": Bench((Figure("counting by itself", rf"counting by itself: {NUMBER} us", "us"),)),
    "probes": Bench((Figure("probes, of bare aiohttp", rf"probes {NUMBER} x", "x CPU"),)),
    "graphql": Bench(
        (
            Figure("a page of 50, 16 at once", rf"list of 50, 16 at once: pilotlight .* {NUMBER} ms CPU", "ms"),
            Figure("Strawberry as it comes, of ours", rf"Strawberry as it comes takes {NUMBER} x", "x CPU", True),
            Figure("ours, of graphql-yoga from memory", rf"ours is {NUMBER} x graphql-yoga", "x CPU"),
        ),
    ),
    "reads": Bench((Figure("promises kept", rf"^{NUMBER} of \d+ promises", "count", True),)),
    "simulator": Bench((Figure("peak memory, 100,000 instances", rf"(?s).*peak memory {NUMBER} MB", "MB"),)),
    "killed": Bench(
        (
            Figure("a create that was made, after the kill", rf"^create, made +{NUMBER} ", "s"),
            Figure("a delete that was done, after the kill", rf"^delete, done +{NUMBER} ", "s"),
        ),
        module="bench.killed_worker",
        is_long=True,
    ),
    "replication": Bench(
        (
            Figure("commits with a standby's disk, of without", rf"waits for its disk .*/s +{NUMBER}$", "ratio", True),
            Figure("a page from the replica", rf"from the replica .*/s +{NUMBER} ms", "ms of the primary's CPU"),
        ),
        is_long=True,
    ),
    "monitor": Bench(
        (
            Figure("calls a page, 10,000 instances", rf"10,000 instances .* = +{NUMBER} a page", "calls a minute"),
            Figure("CPU of a worker, 10,000 instances", rf"10,000 instances .*worker CPU +{NUMBER}%", "% of a core"),
        ),
        is_long=True,
    ),
    "live": Bench(
        (
            Figure("messages, of a bare broadcast", rf"messages/s are {NUMBER} of the bare", "ratio", True),
            Figure("last of 1,000, of a bare broadcast", rf"last of 1,000 after {NUMBER} times", "ratio"),
            Figure("an idle subscription", rf"{NUMBER} KiB for each idle", "KiB"),
            Figure("stalled readers, memory", rf"memory grew by {NUMBER} MiB \(at most", "MiB"),
        ),
        runs=((), ("--subscribers", "5000"), ("--cycles", "10000"), ("--stalled", "20")),
        is_long=True,
    ),
    "dashboard": Bench(
        (
            Figure("longest task", rf"^longest task +{NUMBER} ms", "ms"),
            Figure("memory, last third of the first", rf"^memory, first third .*, {NUMBER}$", "ratio"),
        ),
        is_long=True,
    ),
    "lifetimes": Bench(
        (
            Figure("10,000 ends, late by, p99", rf"ends: late by p50 [\d.]+ s, p99 {NUMBER} s", "s"),
            Figure("drain beside ends, of without", rf"drain beside ends: {NUMBER} of", "ratio", True),
            Figure("heartbeats", rf"API processes: {NUMBER} a second", "a second", True),
        ),
        is_long=True,
    ),
    "neighbour": Bench(
        (
            Figure("create beside noise, of in quiet", rf"^\| create, to its acceptance .* {NUMBER} \|$", "ratio"),
            Figure("first event beside noise, of in quiet", rf"^\| create, to its first .* {NUMBER} \|$", "ratio"),
            Figure("stop beside noise, of in quiet", rf"^\| stop, to EXITED .* {NUMBER} \|$", "ratio"),
        ),
        module="tests.neighbour.run",
        is_long=True,
    ),
    "fairness": Bench(
        (
            Figure("stop beside 1,000 creates, called, p99", rf" stop: .*provider p50 [\d.]+ p99 {NUMBER} s", "s"),
            Figure("RUNNING known late by, longest", rf"^RUNNING here after .*longest {NUMBER} s", "s"),
            Figure("Jain's index of begun creates", rf"Jain's index {NUMBER}", "ratio", True),
        ),
        is_long=True,
    ),
    "scale": Bench(
        (
            Figure("largest ratio, millions of a thousand", rf"largest ratio with a limit: {NUMBER}", "ratio"),
            Figure("memory of an idle `pilotlight up`", rf"idle `pilotlight up`: {NUMBER} MB", "MB"),
        ),
        is_long=True,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of benches, separated by commas")
    parser.add_argument("--short", action="store_true", help="without those that take minutes each")
    given = parser.parse_args()
    all_names = [name for name, bench in BENCHES.items() if not (given.short and bench.is_long)]
    names = given.only.split(",") if given.only else all_names
    unknown = set(names) - BENCHES.keys()
    if unknown:
        parser.error(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    history = read_history(FOLDER / "history.jsonl")
    worse: list[str] = []
    for name in names:
        entry = run(name)
        worse += regressions(entry, history)
        history.append(entry)
        # After each one: what was measured stays, whatever happens to the rest.
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / "history.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
        write_results(history)
    print("\n".join(worse) or f"no figure is {REGRESSION:.0%} worse than the median of its last {COMPARED} runs")
    return 1 if worse else 0


def run(name: str) -> dict[str, Any]:
    """Run one bench, pass on what it prints, and read its figures."""
    print(f"== {name}", flush=True)
    bench, began, text, code = BENCHES[name], time.monotonic(), "", 0
    for arguments in bench.runs:
        command = [sys.executable, "-m", bench.module or f"bench.{name}", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        text, code = text + done.stdout, code or done.returncode
    return {
        "bench": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "took_s": round(time.monotonic() - began),
        "exit_code": code,
        "figures": read_figures(text, bench.figures),
    }


def read_figures(text: str, figures: tuple[Figure, ...]) -> dict[str, float | None]:
    """By name; null for one that the bench did not print."""
    found = {figure.name: re.search(figure.pattern, text, re.MULTILINE) for figure in figures}
    return {name: None if match is None else float(match[1].replace(",", "")) for name, match in found.items()}


def regressions(entry: dict[str, Any], history: list[dict[str, Any]]) -> list[str]:
    """The figures that are worse than before, each as a sentence. One that is missing is one, too."""
    before = [each["figures"] for each in history if each["bench"] == entry["bench"]]
    lines: list[str] = []
    for figure in BENCHES[entry["bench"]].figures:
        value = entry["figures"][figure.name]
        known = [each[figure.name] for each in before if each.get(figure.name) is not None][-COMPARED:]
        title = f"{entry['bench']}, {figure.name}"
        if value is None:
            lines.append(f"MISSING {title}")
        elif known:
            usual = statistics.median(known)
            limit = usual * (1 - REGRESSION if figure.is_higher_better else 1 + REGRESSION)
            if value < limit if figure.is_higher_better else value > limit:
                lines.append(f"WORSE   {title}: {value:g} {figure.unit}, usually {usual:g}")
    return lines


def read_history(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_results(history: list[dict[str, Any]]) -> None:
    """The last run of each bench, as JSON and as a page."""
    last = {entry["bench"]: entry for entry in history}
    (FOLDER / "latest.json").write_text(json.dumps([last[name] for name in BENCHES if name in last], indent=2) + "\n")
    PAGE.write_text(page_of(last))


def page_of(last: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Benchmarks",
        "",
        'Written by `make bench` (`ARGS="--only create,spend"` for some, `ARGS=--short` without those that take',
        "minutes each). The same as JSON is in [latest.json](benchmarks/latest.json), every run in",
        f"[history.jsonl](benchmarks/history.jsonl). A figure that is {REGRESSION:.0%} worse than the median of its",
        f"last {COMPARED} runs fails the command. Compare only runs of one machine, with nothing else running; date",
        "and commit are those of the run. A ratio is to a peer that ran beside.",
        "",
        "| bench | figure | value | date | commit | took |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, bench in BENCHES.items():
        entry = last.get(name)
        for figure in bench.figures:
            value = None if entry is None else entry["figures"].get(figure.name)
            shown = "not printed" if value is None else f"{value:g} {figure.unit}"
            if entry is None:
                shown = "**not measured**"
            elif entry["exit_code"]:
                shown += ", a limit of the bench was missed"
            when = ("", "", "") if entry is None else (entry["at"][:10], entry["commit"], f"{entry['took_s']} s")
            lines.append(f"| `make bench-{name}` | {figure.name} | {shown} | {' | '.join(when)} |")
    return "\n".join(lines) + "\n"


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
