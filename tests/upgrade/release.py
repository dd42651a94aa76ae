"""Checks out the code of the previous release from git."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.processes import ROOT

# The newest migration of the previous release, 0.1. When one is made, this becomes the newest of what it contained.
PREVIOUS_HEAD = "0010"


def previous_release(folder: Path) -> str | None:
    """Unpack it there; None, and nothing done, where git does not know it (a shallow clone, an unpacked archive)."""
    following = f"migrations/versions/{int(PREVIOUS_HEAD) + 1:04}_*.py"
    added = _git("log", "--format=%H", "--diff-filter=A", "--", following).decode().split()
    if not added:
        return None
    archive = _git("archive", "--format=zip", f"{added[-1]}^")
    if not archive:
        return None
    # Not a tar: before Python 3.11.4, tarfile has no `filter`, and newer ones ask for it.
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(folder)
    return f"{added[-1]}^"


def command_of(folder: Path) -> tuple[str, ...]:
    """How its `pilotlight` is run: from that folder, with the libraries of this environment."""
    module = "server.cli.main" if (folder / "server" / "cli" / "main.py").is_file() else "server.cli"
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); from {module} import main; main()"
    return (sys.executable, "-c", start)


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    except OSError:
        return b""
    return done.stdout if done.returncode == 0 else b""
