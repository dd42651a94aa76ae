"""What the system knows about a process, so that a number from a file is never taken for the process it once was."""

import os
import subprocess
import sys
from pathlib import Path


def started(pid: int) -> str | None:
    """When the process began, in whatever unit the system counts; None if it has ended.

    A pid and its start name one process for good, a pid alone is given to others later.
    """
    if sys.platform != "linux":
        state, _, start = _ps(pid, "state=", "lstart=").partition(" ")
        return start.strip() if state and not state.startswith("Z") else None
    try:
        # The name in parentheses may itself hold spaces and parentheses; the state and 18 more fields follow it.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19] if fields[0] not in "ZX" else None


def is_postgres(pid: int, data: Path) -> bool:
    """Whether the process is a PostgreSQL server on that data directory."""
    if sys.platform != "linux":
        return f"postgres -D {data} " in _ps(pid, "command=")
    try:
        arguments = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return False
    return arguments[0].endswith("/postgres") and str(data) in arguments


def _ps(pid: int, *columns: str) -> str:
    command = ["ps", "-ww", *(part for column in columns for part in ("-o", column)), "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
