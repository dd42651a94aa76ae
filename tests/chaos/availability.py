"""When each worker had what it needs during a chaos run: it was up, and the database answered it."""

import asyncio
import contextlib
import time
from collections import defaultdict
from dataclasses import dataclass, field

import asyncpg

from tests.chaos.cluster import Cluster
from tests.chaos.schedule import WORKERS

SAMPLE_EVERY = 0.4  # seconds
# A sample that takes longer shows that the machine had no time for anybody.
SAMPLE_MAX = 1.5
HURTS_ONE = frozenset({"freeze worker", "SIGTERM worker", "wrong key worker", "database network"})
HURTS_ALL = frozenset({"database away for all", "database disk full"})
# Internal: a connection that breaks while a request is cancelled.
AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

Span = tuple[float, float]


@dataclass
class Availability:
    """Times are those of the machine's monotonic clock. `spans` are those in which a worker lacked something."""

    spans: defaultdict[str, list[Span]] = field(default_factory=lambda: defaultdict[str, list[Span]](list))

    def lacks(self, began: float, ended: float, *workers: str) -> None:
        for worker in workers or WORKERS:
            self.spans[worker].append((began, ended))

    def fault(self, kind: str, victim: str, began: float, ended: float) -> None:
        """A fault that was injected. Whether a process is up, and the database answers, is also sampled."""
        if kind in HURTS_ALL:
            self.lacks(began, ended)
        elif kind in HURTS_ONE and victim in WORKERS:
            self.lacks(began, ended, victim)

    def longest(self, began: float, ended: float) -> float:
        """The longest time within this one in which the same worker had all that it needs, in seconds."""
        return max(_longest_gap(self.spans[worker], began, ended) for worker in WORKERS)

    async def watch(self, stage: Cluster) -> None:
        """Until cancelled."""
        last, pids = time.monotonic(), dict.fromkeys(WORKERS, 0)
        connection: asyncpg.Connection[asyncpg.Record] | None = None
        try:
            while True:
                await asyncio.sleep(SAMPLE_EVERY)
                try:
                    if connection is None:
                        connection = await asyncpg.connect(stage.url, timeout=2)
                    await connection.fetchval("SELECT 1", timeout=2)
                    answers = True
                except AWAY:
                    answers = False
                    if connection is not None:
                        connection.terminate()
                    connection = None
                moment = time.monotonic()
                if not answers or moment - last > SAMPLE_MAX:
                    self.lacks(last, moment)
                for name in WORKERS:
                    process = stage.processes[name]
                    if not process.is_up or process.pid != pids[name]:
                        self.lacks(last, moment, name)
                    pids[name] = process.pid
                last = moment
        finally:
            if connection is not None:
                connection.terminate()

    def add_stalls(self, stage: Cluster) -> None:
        """Times in which the machine gave a worker no time to run, as it recorded them itself."""
        names = {life.pid: name for name in WORKERS for life in stage.processes[name].lives}
        names |= {stage.processes[name].pid: name for name in WORKERS}
        begun: dict[str, float] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in stage.runs.read_text().splitlines():
                pid, _, _, kind, at, what = line.split(" ")
                if kind != "STALL" or int(pid) not in names:
                    continue
                if what == "begins":
                    begun[pid] = float(at)
                else:
                    self.lacks(begun.pop(pid), float(at), names[int(pid)])


def _longest_gap(spans: list[Span], began: float, ended: float) -> float:
    longest, free_since = 0.0, began
    for start, stop in sorted(spans):
        if stop <= began or start >= ended:
            continue
        longest = max(longest, start - free_since)
        free_since = max(free_since, stop)
    return max(longest, ended - free_since)
