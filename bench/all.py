"""Runs the benches one after another, and keeps their figures: one JSON file, a history and a page.

    python -m bench.all                      all of them, about an hour
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


BENCHES: dict[str, tuple[tuple[str, ...], tuple[Figure, ...]]] = {
    "create": (
        (),
        (
            Figure("one at once, of bare asyncpg", rf"1 at once: .* {NUMBER}$", "ratio", is_higher_better=True),
            Figure("32 at once, of bare asyncpg", rf"32 at once: .*/s +{NUMBER}(?:  FAIL.*)?$", "ratio", True),
            Figure("CPU of the API per create", rf"CPU of the API process: {NUMBER} ms", "ms"),
        ),
    ),
    "spend": (
        (),
        (
            Figure("a month by day, 1 M entries", rf"groupBy DAY +{NUMBER} ms", "ms"),
            Figure("a month by instance, 1 M entries", rf"groupBy INSTANCE +{NUMBER} ms", "ms"),
            Figure("a month by label, 1 M entries", rf"groupBy LABEL +{NUMBER} ms", "ms"),
        ),
    ),
    "audit": (
        (),
        (
            Figure("bytes per record, 1 M", rf"1,000,000 records: {NUMBER} bytes", "bytes"),
            Figure("a page of a project, 1 M", rf"1,000,000 records: .*page of a project {NUMBER} ms", "ms"),
            Figure("a write of 32 records", rf"1,000,000 records: .*write of 32 {NUMBER} ms", "ms"),
        ),
    ),
    "idle": ((), (Figure("CPU when idle", rf"pilotlight +{NUMBER} % of a core", "% of a core"),)),
    "market": (
        (),
        (
            Figure("CPU of a worker, 10,000 wait", rf"worker {NUMBER} % of a core", "% of a core"),
            Figure("stock to create call, p99", rf"p99 {NUMBER} s$", "s"),
        ),
    ),
    "client": ((), (Figure("provider client, of bare aiohttp", rf"ratio: +{NUMBER} ", "ratio", True),)),
    "queue": (
        (),
        (
            Figure("drain, 10 at once", rf"pilotlight +10 at once +{NUMBER}", "jobs/s", True),
            Figure("drain, 100 at once", rf"pilotlight +10 at once +[\d,]+ +100 at once +{NUMBER}", "jobs/s", True),
        ),
    ),
    "observe": ((), (Figure("counting by itself", rf"counting by itself: {NUMBER} us", "us"),)),
    "probes": ((), (Figure("probes, of bare aiohttp", rf"probes {NUMBER} x", "x CPU"),)),
    "graphql": ((), (Figure("a page of 50, 16 at once", rf"16 at once: pilotlight .* {NUMBER} ms CPU", "ms"),)),
    "reads": ((), (Figure("promises kept", rf"^{NUMBER} of \d+ promises", "count", True),)),
    "simulator": ((), (Figure("peak memory, 100,000 instances", rf"(?s).*peak memory {NUMBER} MB", "MB"),)),
}

# Why `make bench` leaves them out; their figures are where the page named here has them.
APART = {
    "dashboard": "needs a browser, and minutes of traffic: [dashboard.md](dashboard.md)",
    "fairness": "minutes at the provider's rate limit: [jobs.md](jobs.md#lines-and-turns)",
    "killed": "waits for leases to end: [architecture.md](architecture.md)",
    "lifetimes": "ten minutes: [lifetimes.md](lifetimes.md)",
    "live": "5,000 subscribers and 10,000 cycles: [scaling.md](scaling.md)",
    "monitor": "10,000 instances for a minute and more: [scaling.md](scaling.md)",
    "neighbour": "rounds of attacks beside a healthy client: [operating.md](operating.md)",
    "replication": "needs a standby: [scaling.md](scaling.md)",
    "scale": "fills tables with millions of rows: [scaling.md](scaling.md)",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BENCHES), help="names of benches, separated by commas")
    names = parser.parse_args().only.split(",")
    unknown = set(names) - BENCHES.keys()
    if unknown:
        parser.error(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    history = read_history(FOLDER / "history.jsonl")
    measured = [run(name) for name in names]
    worse = [line for entry in measured for line in regressions(entry, history)]
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "history.jsonl").open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in measured)
    write_results([*history, *measured])
    print("\n".join(worse) or f"no figure is {REGRESSION:.0%} worse than the median of its last {COMPARED} runs")
    return 1 if worse else 0


def run(name: str) -> dict[str, Any]:
    """Run one bench, pass on what it prints, and read its figures."""
    print(f"== {name}", flush=True)
    arguments, figures = BENCHES[name]
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    return {
        "bench": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "exit_code": done.returncode,
        "figures": read_figures(done.stdout, figures),
    }


def read_figures(text: str, figures: tuple[Figure, ...]) -> dict[str, float | None]:
    """By name; null for one that the bench did not print."""
    found = {figure.name: re.search(figure.pattern, text, re.MULTILINE) for figure in figures}
    return {name: None if match is None else float(match[1].replace(",", "")) for name, match in found.items()}


def regressions(entry: dict[str, Any], history: list[dict[str, Any]]) -> list[str]:
    """The figures that are worse than before, each as a sentence. One that is missing is one, too."""
    before = [each["figures"] for each in history if each["bench"] == entry["bench"]]
    lines: list[str] = []
    for figure in BENCHES[entry["bench"]][1]:
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
        'Written by `make bench` (`ARGS="--only create,spend"` for some). The same as JSON is in',
        "[latest.json](benchmarks/latest.json), every run in [history.jsonl](benchmarks/history.jsonl). A figure that",
        f"is {REGRESSION:.0%} worse than the median of its last {COMPARED} runs fails the command. Compare only runs",
        "of one machine, with nothing else running; the date and the commit are those of the run.",
        "",
        "| bench | figure | value | date | commit |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in BENCHES:
        entry = last.get(name)
        for figure in BENCHES[name][1]:
            value = None if entry is None else entry["figures"].get(figure.name)
            shown = "not printed" if value is None else f"{value:g} {figure.unit}"
            if entry is None:
                shown = "**not measured**"
            elif entry["exit_code"]:
                shown += ", a limit of the bench was missed"
            when = ("", "") if entry is None else (entry["at"][:10], entry["commit"])
            lines.append(f"| `make bench-{name}` | {figure.name} | {shown} | {when[0]} | {when[1]} |")
    lines += ["", "Not part of `make bench`:", "", "| bench | why, and where its figures are |", "| --- | --- |"]
    lines += [f"| `make bench-{name}` | {reason} |" for name, reason in APART.items()]
    return "\n".join(lines) + "\n"


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
