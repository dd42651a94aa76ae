"""An append-only file that holds the world across a kill."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import orjson

from server.novita.simulator.instances import Instance
from server.novita.simulator.wire import JsonObject

# (table, key, the whole record or None when it is gone)
Record = tuple[str, str, Instance | JsonObject | None]
LoadedRecord = tuple[str, str, JsonObject | None]

# Below this size rewriting saves nothing.
SHORTEST_REWRITE = 1 << 20


class Journal:
    """One line per call, holding all records that the call changed.

    A line is one write to the file, so a killed process leaves all of it or a torn last line, and a torn
    line was never answered. No fsync: what must be survived is the death of the process, not of the machine.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Created private: registry passwords are in it.
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = 0
        self._size_rewritten = 0

    def read(self) -> list[LoadedRecord]:
        """All records in order; cuts off a torn last line, or the next append would be glued to it."""
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
            # A full disk took part of the line; the next one must not be glued to it.
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)

    @property
    def is_long(self) -> bool:
        return self._size > max(SHORTEST_REWRITE, 3 * self._size_rewritten)

    def rewrite(self, records: Sequence[Record]) -> None:
        """Replace the history by its result. The rename is atomic: killed before it, the old file is still whole."""
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
