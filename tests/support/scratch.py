"""A folder in memory for the databases of a test run: making, copying and removing one is a thousand files."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
PREFIX = "pilotlight-tests-"
ENOUGH = 8 * 2**30  # bytes; five test processes use a part of it


def use_memory() -> Callable[[], None] | None:
    """From now on temporary folders are in memory, if there is plenty; call the result to remove them.

    `tmp_path` stays on disk, where pytest keeps what a failed test has left.
    """
    if os.environ.get("TMPDIR") or not _is_usable():
        return None
    for left in MEMORY.glob(f"{PREFIX}*"):  # by a run that was killed
        if not psutil.pid_exists(int(left.name.split("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY)
    os.chmod(folder, 0o1777)  # as /tmp: PostgreSQL runs as another user than root
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    return lambda: shutil.rmtree(folder, ignore_errors=True)


def _is_usable() -> bool:
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return False
    can_run_programs = not found.f_flag & getattr(os, "ST_NOEXEC", 0)
    return can_run_programs and min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available) > ENOUGH
