"""PostgreSQL's log file in the home: kept small, and searched for the cause of a failure."""

import os
import re
import shutil
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
ERROR_LINE = re.compile(r"(?:PANIC|FATAL|ERROR|error):\s+(?P<what>.+)")


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
        """Keep at most one old copy. Not a rename: the server would continue to write to the renamed file."""
        if self.size() > MAX_BYTES:
            shutil.copyfile(self.path, self.path.with_suffix(".log.old"))
            os.truncate(self.path, 0)

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def has_errors(self, since: int) -> bool:
        return any(ERROR_LINE.search(line) for line in self._lines(since))

    def reason(self, since: int) -> str:
        """The cause of a failure in one sentence, with the path of the log."""
        lines = self._lines(since)
        # The first error is the cause of the others; without one, the last line is used.
        errors = [match["what"] for line in lines if (match := ERROR_LINE.search(line))]
        what = errors[0] if errors else lines[-1] if lines else "the log is empty"
        return f"{what.strip().rstrip('.')} (see {self.path})."

    def _lines(self, since: int) -> list[str]:
        with self.path.open("rb") as file:
            file.seek(since)
            return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
