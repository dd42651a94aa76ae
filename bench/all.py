"""Runs the benches one after another, and keeps their figures: one JSON file, a history and a page.

    python -m bench.all                      all of them in their short form, about half an hour
    python -m bench.all --long               each as its own command runs it, about three hours
    python -m bench.all --only spend,idle    some of them; the figures of the others stay as they are
    python -m bench.all --dry                only print the figures

The short form measures the same with fewer rows, rounds and seconds. A bench that fails or takes longer than its time
limit does not stop the others. A figure that is 20 % worse than the median of its last five runs of the same form is a
regression: it is printed and the exit code is 1. Most figures are ratios to a peer that runs beside, so that another
machine gives about the same.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
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
LIMIT = {"short": 360.0, "long": 3600.0}  # seconds for all runs of a bench together
TO_END = 20.0  # seconds to end in order, once the limit is over


@dataclass(frozen=True, slots=True)
class Figure:
    """Found in what a bench prints by `pattern`, whose first group is the number."""

    name: str
    pattern: str
    unit: str
    is_higher_better: bool = False


@dataclass(frozen=True, slots=True)
class Bench:
    """`long` and `short` are the arguments of each run; what they print is read together."""

    figures: tuple[Figure, ...]
    short: tuple[str, ...] = ("",)
    long: tuple[str, ...] = ("",)
    module: str = ""  # where it is not bench.NAME
    is_promise: bool = True  # it ends with 1 when a limit of its own is missed

    def runs(self, form: str) -> tuple[str, ...]:
        return self.short if form == "short" else self.long


BENCHES = {
    "create": Bench(
        (
            Figure("one at once, of bare asyncpg", rf"^ +1 at once: .*/s +{NUMBER}  (?:PASS|FAIL)", "ratio", True),
            Figure("32 at once, of bare asyncpg", rf"^ *32 at once: .*/s +{NUMBER}  (?:PASS|FAIL)", "ratio", True),
            Figure("CPU of the API per create", rf"CPU of the API process: {NUMBER} ms", "ms"),
            Figure("with a budget, of without", rf"with a budget {NUMBER} of the rate without", "ratio", True),
            Figure("without any budget, of not asking", rf"never asks for budgets {NUMBER} of the rate", "ratio", True),
        ),
        short=("--seconds 1.5", "--budget --seconds 0.7"),
        long=("", "--budget"),
    ),
    "spend": Bench(
        (
            Figure("a month by day", rf"groupBy DAY +{NUMBER} ms", "ms"),
            Figure("a month by instance", rf"groupBy INSTANCE +{NUMBER} ms", "ms"),
            Figure("a month by label", rf"groupBy LABEL +{NUMBER} ms", "ms"),
        ),
        short=("--entries 200000",),
    ),
    "audit": Bench(
        (
            Figure("bytes per record", rf"\d00,000 records: {NUMBER} bytes", "bytes"),
            Figure("a page of a project", rf"\d00,000 records: .*page of a project {NUMBER} ms", "ms"),
            Figure("a write of 32 records", rf"\d00,000 records: .*write of 32 {NUMBER} ms", "ms"),
        ),
        short=("--rows 200000",),
    ),
    "idle": Bench(
        (Figure("CPU when idle", rf"pilotlight +{NUMBER} % of a core", "% of a core"),),
        short=("--seconds 40",),
    ),
    "market": Bench(
        (
            Figure("CPU of a worker, 10,000 wait", rf"worker {NUMBER} % of a core", "% of a core"),
            Figure("stock to create call, p99", rf"p99 {NUMBER} s$", "s"),
        ),
        short=("--seconds 62 --rounds 4",),
    ),
    "client": Bench((Figure("provider client, of bare aiohttp", rf"ratio: +{NUMBER} ", "ratio", True),)),
    "queue": Bench(
        (
            Figure("drain, 10 at once", rf"pilotlight +10 at once +{NUMBER}", "jobs/s", True),
            Figure("drain, 100 at once", rf"pilotlight +10 at once +[\d,]+ +100 at once +{NUMBER}", "jobs/s", True),
            Figure("drain, of PgQueuer's, 100 at once", rf"drain / PgQueuer's, 100 at once: {NUMBER},", "ratio", True),
        ),
        short=("--rounds 1 --jobs 20000 --finished 300000 --snapshot-seconds 12",),
    ),
    "observe": Bench(
        (Figure("counting by itself", rf"counting by itself: {NUMBER} us", "us"),),
        short=("--seconds 0.3",),
    ),
    "probes": Bench((Figure("probes, of bare aiohttp", rf"probes {NUMBER} x", "x CPU"),), is_promise=False),
    "graphql": Bench(
        (
            Figure("a page of 50, 16 at once", rf"list of 50, 16 at once: pilotlight .* {NUMBER} ms CPU", "ms"),
            Figure("Strawberry as it comes, of ours", rf"Strawberry as it comes takes {NUMBER} x", "x CPU", True),
            Figure("ours, of graphql-yoga from memory", rf"ours is {NUMBER} x graphql-yoga", "x CPU"),
        ),
        short=("--seconds 0.7",),
    ),
    "reads": Bench(
        (Figure("promises kept", rf"^{NUMBER} of \d+ promises", "count", True),),
        short=("--seconds 0.5",),
    ),
    "simulator": Bench(
        (Figure("peak memory, 100,000 instances", rf"(?s).*peak memory {NUMBER} MB", "MB"),),
        short=("--seconds 1",),
        is_promise=False,
    ),
    "killed": Bench(
        (
            Figure("a create that was made, after the kill", rf"^create, made +{NUMBER} ", "s"),
            Figure("a delete that was done, after the kill", rf"^delete, done +{NUMBER} ", "s"),
        ),
        module="bench.killed_worker",
        short=("--factor 3",),
        is_promise=False,
    ),
    "replication": Bench(
        (
            Figure("commits with a standby's disk, of without", rf"waits for its disk .*/s +{NUMBER}$", "ratio", True),
            Figure("a page from the replica", rf"from the replica .*/s +{NUMBER} ms", "ms of the primary's CPU"),
        ),
        short=("--seconds 2",),
        is_promise=False,
    ),
    "monitor": Bench(
        (
            Figure("calls a page, 10,000 instances", rf"10,000 instances .* = +{NUMBER} a page", "calls a minute"),
            Figure("CPU of a worker, 10,000 instances", rf"10,000 instances .*worker CPU +{NUMBER}%", "% of a core"),
        ),
        short=("--sizes 10000 --seconds 60",),
        is_promise=False,
    ),
    "live": Bench(
        (
            Figure("messages, of a bare broadcast", rf"messages/s are {NUMBER} of the bare", "ratio", True),
            Figure("last of 1,000, of a bare broadcast", rf"last of 1,000 after {NUMBER} times", "ratio"),
            Figure("an idle subscription", rf"{NUMBER} KiB for each idle", "KiB"),
            Figure("stalled readers, memory", rf"memory grew by {NUMBER} MiB \(at most", "MiB"),
        ),
        short=("", "--cycles 2000", "--stalled 20"),
        long=("", "--subscribers 5000", "--cycles 10000", "--stalled 20"),
    ),
    "dashboard": Bench(
        (
            Figure("longest task", rf"^longest task +{NUMBER} ms", "ms"),
            Figure("memory, last third of the first", rf"^memory, first third .*, {NUMBER}$", "ratio"),
        ),
        short=("--seconds 75",),
    ),
    "lifetimes": Bench(
        (
            Figure("ends, late by, p99", rf"ends: late by p50 [\d.]+ s, p99 {NUMBER} s", "s"),
            Figure("drain beside ends, of without", rf"drain beside ends: {NUMBER} of", "ratio", True),
            Figure("heartbeats", rf"API processes: {NUMBER} a second", "a second", True),
        ),
        short=("ends --ends 3000", "drain --ends 3000", "heartbeats"),
    ),
    "neighbour": Bench(
        (
            Figure("create beside noise, of in quiet", rf"^\| create, to its acceptance .* {NUMBER} \|$", "ratio"),
            Figure("first event beside noise, of in quiet", rf"^\| create, to its first .* {NUMBER} \|$", "ratio"),
            Figure("stop beside noise, of in quiet", rf"^\| stop, to EXITED .* {NUMBER} \|$", "ratio"),
        ),
        module="tests.neighbour.run",
        short=("--rounds 2 --settle 10",),
    ),
    "fairness": Bench(
        (
            Figure("stop beside a burst of creates, called, p99", rf" stop: .*provider p50 [\d.]+ p99 {NUMBER} s", "s"),
            Figure("RUNNING known late by, longest", rf"^RUNNING here after .*longest {NUMBER} s", "s"),
            Figure("Jain's index of begun creates", rf"Jain's index {NUMBER}", "ratio", True),
        ),
        short=("--creates 60 --only burst", "--creates 60 --only greed"),
    ),
    "scale": Bench(
        (
            Figure("largest ratio, many rows of a thousand", rf"largest ratio with a limit: {NUMBER}", "ratio"),
            Figure("memory of an idle `pilotlight up`", rf"idle `pilotlight up`: {NUMBER} MB", "MB"),
        ),
        short=("--instances 100000 --events 1000000 --rows 100000 --rounds 10",),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of benches, separated by commas")
    parser.add_argument("--long", action="store_true", help="each as its own command runs it")
    parser.add_argument("--dry", action="store_true", help="write no file")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(BENCHES)
    unknown = set(names) - BENCHES.keys()
    if unknown:
        parser.error(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    form = "long" if given.long else "short"
    history = read_history(FOLDER / "history.jsonl")
    entries: list[dict[str, Any]] = []
    worse: list[str] = []
    for name in names:
        entry = run(BENCHES[name], name, form=form, limit=LIMIT[form])
        worse += regressions(entry, history)
        entries.append(entry)
        history.append(entry)
        if not given.dry:
            # After each one: what was measured stays, whatever happens to the rest.
            FOLDER.mkdir(exist_ok=True)
            with (FOLDER / "history.jsonl").open("a") as file:
                file.write(json.dumps(entry) + "\n")
            write_results(history)
    print(summary_of(entries))
    print("\n".join(worse) or f"no figure is {REGRESSION:.0%} worse than the median of its last {COMPARED} runs")
    return 1 if worse else 0


def run(bench: Bench, name: str, *, form: str, limit: float, folder: Path = ROOT) -> dict[str, Any]:
    """Run one bench, pass on what it prints, and read its figures."""
    print(f"== {name}", flush=True)
    began, text, codes = time.monotonic(), "", list[int | None]()
    for arguments in bench.runs(form):
        command = [sys.executable, "-m", bench.module or f"bench.{name}", *arguments.split()]
        printed, code = run_within(command, began + limit - time.monotonic(), folder=folder)
        print(printed, flush=True)
        text += printed
        codes.append(code)
        if code is None:
            print(f"stopped: all runs of {name} together have {limit:.0f} s", flush=True)
            break
    figures = read_figures(text, bench.figures)
    return {
        "bench": name,
        "form": form,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "took_s": round(time.monotonic() - began),
        "exit_codes": codes,
        "kept": verdict_of(bench, codes, figures),
        "figures": figures,
    }


def run_within(
    command: list[str], seconds: float, *, to_end: float = TO_END, folder: Path = ROOT
) -> tuple[str, int | None]:
    """What it prints and its exit code; None if it was stopped. What it has started is stopped with it."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, start_new_session=True)
        try:
            code = process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            code = None
            process.send_signal(signal.SIGINT)  # Python then leaves its contexts: servers, temporary folders
            with suppress(subprocess.TimeoutExpired):
                process.wait(to_end)
        # What it did not stop itself.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return output.read(), code


def verdict_of(bench: Bench, codes: list[int | None], figures: dict[str, float | None]) -> str:
    """Whether the bench kept its own promises, as the page shows it."""
    if None in codes:
        return "stopped by its time limit"
    if None in figures.values():
        return "not finished"
    if any(codes):
        return "no"
    return "yes" if bench.is_promise else "none made"


def read_figures(text: str, figures: tuple[Figure, ...]) -> dict[str, float | None]:
    """By name; null for one that the bench did not print."""
    found = {figure.name: re.search(figure.pattern, text, re.MULTILINE) for figure in figures}
    return {name: None if match is None else float(match[1].replace(",", "")) for name, match in found.items()}


def regressions(entry: dict[str, Any], history: list[dict[str, Any]]) -> list[str]:
    """The figures that are worse than before, each as a sentence. One that is missing is one, too."""
    same = [each for each in history if (each["bench"], each["form"]) == (entry["bench"], entry["form"])]
    before = [each["figures"] for each in same]
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


def summary_of(entries: list[dict[str, Any]]) -> str:
    lines = [f"{'bench':14} {'took':>7}  promises kept"]
    for entry in entries:
        lines.append(f"{entry['bench']:14} {entry['took_s']:>5} s  {entry['kept']}")
        lines += [f"{'':24}{name}: {value}" for name, value in entry["figures"].items()]
    return "\n".join([*lines, f"{'together':14} {sum(entry['took_s'] for entry in entries):>5} s"])


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
        'Written by `make bench` (`ARGS="--only create,spend"` for some). It runs each bench in a short form, about',
        "half an hour for all; `ARGS=--long` runs each as its own command does, which takes about three hours.",
        "The same as JSON is in [latest.json](benchmarks/latest.json), every run in",
        f"[history.jsonl](benchmarks/history.jsonl). A figure that is {REGRESSION:.0%} worse than the median of its",
        f"last {COMPARED} runs of the same form fails the command. Compare only runs of one machine, with nothing else",
        "running; date and commit are those of the run. A ratio is to a peer that ran beside.",
        "",
        "| bench | figure | value | promises kept | date | commit |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, bench in BENCHES.items():
        entry = last.get(name)
        for figure in bench.figures:
            value = None if entry is None else entry["figures"].get(figure.name)
            shown = "not printed" if value is None else f"{value:g} {figure.unit}"
            when = ("**not measured**", "", "", "")
            if entry is not None:
                when = (shown, entry["kept"], entry["at"][:10], entry["commit"])
            lines.append(f"| `make bench-{name}` | {figure.name} | {' | '.join(when)} |")
    lines += [
        "",
        "How each was run, and how long that took:",
        "",
        "| bench | arguments | took |",
        "| --- | --- | --- |",
    ]
    for name, bench in BENCHES.items():
        entry = last.get(name)
        form = "short" if entry is None else entry["form"]
        shown = "; ".join(f"`{each}`" if each else "none" for each in bench.runs(form))
        lines.append(f"| `make bench-{name}` | {shown} | {'' if entry is None else str(entry['took_s']) + ' s'} |")
    return "\n".join(lines) + "\n"


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
