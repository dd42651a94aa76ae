"""Plants defects into a copy of the product, one by one, and checks that each is caught.

    python -m tests.chaos.mutants                       all of them; exit code 1 if one survives
    python -m tests.chaos.mutants --only "wrong order"  those whose name contains the text
    python -m tests.chaos.mutants --without-chaos       only those that a named test must catch: two minutes
    python -m tests.chaos.mutants --list                only their names and what must catch them

A defect is a replacement of a piece of source text that must be in the product exactly once: if the code has moved, the
command fails and says so. What catches it is a named test, or the short chaos run within three seeds. First, the same
tests and one chaos run must pass on the copy without a defect; otherwise nothing would be proved.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.mutant_list import MUTANTS, Mutant
from tests.support.processes import ROOT

PRODUCT = ("server", "schema")
SEEDS = (1, 2, 3)
TEST_SECONDS, CHAOS_SECONDS = 240, 600
KEPT = Path(tempfile.gettempdir()) / "pilotlight-mutants"
VIOLATION = re.compile(r"^VIOLATION of (\d+): (.*)$", re.MULTILINE)
BROKEN = re.compile(r"^BROKEN: (.*)$", re.MULTILINE)


class Misplaced(Exception):
    """The text that a mutant replaces is not in the product exactly once."""


def place(root: Path, mutant: Mutant) -> Path:
    """The one file of the product that has the mutant's text, exactly once."""
    found = [
        (file, count)
        for folder in PRODUCT
        for file in sorted((root / folder).rglob("*.py"))
        if (count := file.read_text().count(mutant.old))
    ]
    if len(found) != 1 or found[0][1] != 1:
        where = ", ".join(f"{file.relative_to(root)} ({count})" for file, count in found) or "nowhere"
        raise Misplaced(f'mutant "{mutant.name}": its text is in {where}, not in one place: {mutant.old!r}')
    return found[0][0]


def planted_source(root: Path, mutant: Mutant) -> str:
    """The source with the defect; it must compile, or the defect would be caught for the wrong reason."""
    file = place(root, mutant)
    source = file.read_text().replace(mutant.old, mutant.new)
    compile(source, str(file), "exec")
    return source


@contextmanager
def planted(root: Path, mutant: Mutant) -> Generator[None]:
    """The product with the defect, until the block ends."""
    file, source = place(root, mutant), planted_source(root, mutant)
    before = file.read_text()
    file.write_text(source)
    try:
        yield
    finally:
        file.write_text(before)


@contextmanager
def copied_product() -> Generator[Path]:
    """A copy of all files that belong to the repository, with its environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tempfile.TemporaryDirectory(prefix="pilotlight-mutants-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        for name in listed.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        yield root


def run(root: Path, *arguments: str, seconds: float) -> tuple[int | None, str]:
    """Python in the copy, whose modules come before the installed ones. The exit code is None after a timeout."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
        return None, output


def run_tests(root: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    return run(root, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "--timeout", "120", *tests, seconds=TEST_SECONDS)


def run_chaos(root: Path, seed: int) -> tuple[dict[int, str], list[str], str]:
    """The first violation of each invariant, and what broke in the run itself."""
    _, output = run(root, "-m", "tests.chaos.run", "--short", "--seed", str(seed), seconds=CHAOS_SECONDS)
    violations: dict[int, str] = {}
    for number, words in VIOLATION.findall(output):
        violations.setdefault(int(number), words)
    broken = BROKEN.findall(output)
    if "what must hold" not in output:
        broken.append("the run did not get to its verdict")
    return violations, broken, output


def catch(root: Path, mutant: Mutant) -> str:
    """Run what must catch it; returns what did, and nothing if it survived."""
    with planted(root, mutant):
        return _by_test(root, mutant) if mutant.test else _by_chaos(root, mutant)


def _by_test(root: Path, mutant: Mutant) -> str:
    code, output = run_tests(root, [mutant.test])
    if code not in (0, 1, None):  # not found, or an error in collecting: nothing was tested
        raise Misplaced(f'mutant "{mutant.name}": {mutant.test} could not be run:\n{output[-3000:]}')
    if code == 0:
        _keep(mutant, output)
        return ""
    return mutant.test


def _by_chaos(root: Path, mutant: Mutant) -> str:
    for seed in SEEDS:
        violations, _, output = run_chaos(root, seed)
        for number in sorted(mutant.invariants):
            if number in violations:
                return f"chaos, seed {seed}, invariant {number}: {violations[number]}"
        _keep(mutant, output)
    return ""


def _keep(mutant: Mutant, output: str) -> None:
    """The output of a run that caught nothing, to find out why."""
    KEPT.mkdir(exist_ok=True)
    with (KEPT / f"{mutant.name}.txt").open("a") as file:
        file.write(output)


def check_without_defect(root: Path, mutants: Sequence[Mutant]) -> None:
    """What must catch the defects finds none in the product as it is."""
    tests = sorted({mutant.test for mutant in mutants if mutant.test})
    if tests:
        code, output = run_tests(root, tests)
        if code != 0:
            raise Misplaced(f"the named tests do not pass without a defect:\n{output[-3000:]}")
    if any(not mutant.test for mutant in mutants):
        violations, broken, output = run_chaos(root, SEEDS[0])
        if violations or broken:
            raise Misplaced(f"the chaos run is not clean without a defect:\n{output[-3000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="part of a mutant's name; may be repeated")
    parser.add_argument("--without-chaos", action="store_true", help="only those that a named test must catch")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--skip-check", action="store_true", help="do not run the tests without a defect first")
    given = parser.parse_args()
    mutants = [each for each in MUTANTS if not given.only or any(part in each.name for part in given.only)]
    mutants = [each for each in mutants if each.test or not given.without_chaos]
    if given.list:
        _print(*(f"{mutant.name:56} {mutant.catcher}" for mutant in mutants))
        return 0
    with copied_product() as root:
        for mutant in mutants:
            planted_source(root, mutant)
        if not given.skip_check:
            _print("without a defect: running the named tests and one chaos run")
            check_without_defect(root, mutants)
        survivors = 0
        _print(f"{'defect':56} {'seconds':>7}  caught by")
        for mutant in mutants:
            began = time.monotonic()
            caught_by = catch(root, mutant)
            survivors += not caught_by
            seconds = time.monotonic() - began
            _print(f"{mutant.name:56} {seconds:>7.0f}  {caught_by or 'NOTHING: it survived'}")
    _print("", f"{len(mutants)} defects, {survivors} survived")
    if survivors:
        _print(f"the outputs of runs that caught nothing are in {KEPT}")
    return 1 if survivors else 0


def _print(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Misplaced as error:
        sys.exit(str(error))
