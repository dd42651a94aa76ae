"""docs/walk.md says through which functions a request goes; it is recorded again and compared."""

import subprocess
import sys
from pathlib import Path

from tests.support.walk import FILE, ROOT


def test_the_committed_walk_is_the_one_of_the_code(tmp_path: Path):
    """In a process of its own: the profiler would see the live tasks of other tests' servers."""
    fresh = tmp_path / "walk.md"
    subprocess.run([sys.executable, "-m", "tests.support.walk", str(fresh)], cwd=ROOT, check=True, timeout=150)

    assert FILE.read_text() == fresh.read_text(), "run `make walk` and commit docs/walk.md"
