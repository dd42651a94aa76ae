"""An append-only file that keeps the simulator's state across restarts and kills."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import orjson

from server.simulator.models import Instance
from server.simulator.requests import JsonObject

# (table, key, the whole record or None if deleted)
Record = tuple[str, str, Instance | JsonObject | None]
LoadedRecord = tuple[str, str, JsonObject | None]

# Bytes; below this size rewriting saves nothing.
REWRITE_SIZE_MIN = 1 << 20
# The name of the file in a home.
STATE_FILE = "simulator.state"


def read_world_id(path: Path) -> str | None:
    """The id of the world in a state file, without opening it for writing: a simulator may be running on it."""
    found: str | None = None
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(orjson.JSONDecodeError):  # a torn last line
            found = next((str(record["id"]) for table, _, record in orjson.loads(line) if table == "world"), found)
    return found


class Journal:
    """One line per request, with all records that it changed.

    A line is one write to the file, so a killed process leaves all of it or a torn last line, and the request of a torn
    line got no response. No fsync: it must survive a kill of the process, not of the machine.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Private: it contains registry passwords.
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = 0
        self._size_rewritten = 0

    def read(self) -> list[LoadedRecord]:
        """All records in order; removes a torn last line, or the next append would join it."""
        whole = self._path.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end != len(whole):
            os.ftruncate(self._fd, end)
        self._size = self._size_rewritten = end
        records: list[LoadedRecord] = []
        for line in whole[:end].splitlines():
            records += [cast(LoadedRecord, tuple(record)) for record in orjson.loads(line)]
        return records

    def append(self, records: Sequence[Record]) -> None:
        line = orjson.dumps(records) + b"\n"
        try:
            _write_all(self._fd, line)
        except OSError:
            # After a partial write, as on a full disk: the next line must not join this one.
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)

    @property
    def needs_rewrite(self) -> bool:
        return self._size > max(REWRITE_SIZE_MIN, 3 * self._size_rewritten)

    def rewrite(self, records: Sequence[Record]) -> None:
        """Replace the history with the current records. The rename is atomic: a kill before it keeps the old file."""
        fresh = self._path.with_name(self._path.name + ".new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        size = 0
        for start in range(0, len(records), 1000):
            line = orjson.dumps(records[start : start + 1000]) + b"\n"
            _write_all(fd, line)
            size += len(line)
        os.fsync(fd)
        fresh.replace(self._path)
        os.close(self._fd)
        self._fd = fd
        self._size = self._size_rewritten = size

    def close(self) -> None:
        os.close(self._fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
