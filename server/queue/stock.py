"""How many jobs a worker asks for: its free slots, and a little ahead when its jobs are short."""

from collections import Counter
from collections.abc import Mapping, Set
from datetime import datetime

from server.queue.turn import Ask, Taken

LARGEST_BATCH = 500
MOST_AHEAD = 1000
# What is claimed ahead should start within this time: longer, and it would lie here while another process is idle.
AHEAD = 0.05
LONG_SCAN = 0.05  # seconds; a turn without anything in its way takes a fraction of that


class Stock:
    """Counts what is held, and what has been asked for and not yet answered."""

    def __init__(self, limits: Mapping[str, int | None], concurrency: int) -> None:
        self._limits = limits
        self._concurrency = concurrency
        self._held: Counter[str] = Counter()
        self._total = 0
        self._usual = 1.0  # seconds per run, a moving average; begins high, so that nothing is claimed ahead at first

    def ask(self) -> tuple[int, dict[str, int]]:
        """How many in all, and at most of each kind; reserved until `answered`."""
        ahead = min(MOST_AHEAD, int(self._concurrency * AHEAD / self._usual))
        room = min(self._concurrency + ahead - self._total, LARGEST_BATCH)
        if room <= 0:
            return 0, {}
        at_most = {
            kind: room if limit is None else min(room, limit - self._held[kind]) for kind, limit in self._limits.items()
        }
        at_most = {kind: many for kind, many in at_most.items() if many > 0}
        return (room, at_most) if at_most else (0, {})

    def reserve(self, ask: Ask) -> None:
        self._total += ask.limit
        for kind, many in ask.at_most.items():
            self._held[kind] += many

    def answered(self, ask: Ask, taken: list[Taken]) -> None:
        """Replace what was reserved by what came."""
        self._total += len(taken) - ask.limit
        for kind, many in ask.at_most.items():
            self._held[kind] -= many
        for job in taken:
            self._held[job.kind] += 1

    def gave(self, job: Taken) -> None:
        """That one is no longer held."""
        self._total -= 1
        self._held[job.kind] -= 1

    def ran(self, seconds: float) -> None:
        self._usual += 0.05 * (max(seconds, 1e-6) - self._usual)

    def is_slow(self) -> None:
        """What was claimed ahead lay there for too long: stop that until runs are seen to be short again."""
        self._usual = 1.0

    @property
    def kinds(self) -> Set[str]:
        return self._limits.keys()


class Floors:
    """Where the claim's scan of each kind starts: at the last job taken, past the dead entries before it.

    While somebody holds a snapshot open, vacuum can't remove those, and each claim would walk over all of them. What
    comes in below a floor (from a long transaction, or given back) is found by a scan from the beginning. Where nobody
    holds a snapshot that costs nothing and is done nearly always; where it takes long it may take a twentieth of the
    time, and a sixtieth while there is enough to do above the floors.
    """

    def __init__(self) -> None:
        self._floors: dict[str, tuple[datetime, int]] = {}
        self._whole_at = float("-inf")
        self._whole_took = 0.0
        self._came_short = True

    def choose(self, now: float) -> Mapping[str, tuple[datetime, int]]:
        """The floors for a claim now; none means from the beginning."""
        can_wait = self._whole_took > LONG_SCAN and not self._came_short
        if now < (self._whole_at + 60 * self._whole_took if can_wait else self.whole_from):
            return self._floors
        return {}

    @property
    def whole_from(self) -> float:
        """When a scan from the beginning is affordable again."""
        return self._whole_at + 20 * self._whole_took

    def saw(self, ask: Ask, taken: list[Taken], *, sent: float, now: float) -> None:
        """Learn from a claim's answer."""
        if not ask.floors:
            self._whole_at = now
            self._whole_took = now - sent
        self._came_short = bool(ask.floors) and len(taken) < ask.limit
        for job in taken:
            self._floors[job.kind] = (job.due_at, job.id)

    def forget(self) -> None:
        self._floors.clear()
        self._whole_at = float("-inf")
