"""PostgreSQL's own log: one file in the home that stays small, and the line in it which says what went wrong."""

import os
import re
import shutil
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
TROUBLE = re.compile(r"(?:PANIC|FATAL|ERROR|error):\s+(?P<what>.+)")


class ServerLog:
    """The file `postgres.log`, and one older copy of it."""

    def __init__(self, home: Path) -> None:
        self.path = home / "postgres.log"
        self.file = -1

    def open(self) -> None:
        self.trim()
        # Appending, so that the server's next line after a trim lands at the new end.
        self.file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def trim(self) -> None:
        """Keep at most one copy of the past. Not a rename: the server would go on writing to the renamed file."""
        if self.size() > MAX_BYTES:
            shutil.copyfile(self.path, self.path.with_suffix(".log.old"))
            os.truncate(self.path, 0)

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def has_errors(self, since: int) -> bool:
        return any(TROUBLE.search(line) for line in self._lines(since))

    def reason(self, since: int) -> str:
        """What the log says about a failure, in one sentence that also tells where to read on."""
        lines = self._lines(since)
        # The first trouble is the cause, what follows are its effects; without one, the last words have to do.
        troubles = [match["what"] for line in lines if (match := TROUBLE.search(line))]
        what = troubles[0] if troubles else lines[-1] if lines else "it said nothing"
        return f"{what.strip().rstrip('.')} (see {self.path})."

    def _lines(self, since: int) -> list[str]:
        with self.path.open("rb") as file:
            file.seek(since)
            return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
