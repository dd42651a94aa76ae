"""How many jobs a worker claims: one per free task, and some ahead while its jobs are short."""

from collections import Counter
from collections.abc import Mapping, Set
from datetime import datetime

from server.queue.exchange import ClaimedJob, ClaimRequest
from server.queue.kinds import JobClass, class_of

BATCH_MAX = 500
PREFETCH_MAX = 1000
# A prefetched job should start within this time: later, and it would wait here while another process is idle.
PREFETCH_SECONDS = 0.05
# Slots that no other class can use, beside those that all share. So each class goes on whatever the others do, and may
# still have everything that is shared.
OWN_SLOTS: Mapping[JobClass, int] = {
    JobClass.ENDS: 3,
    JobClass.WATCHING: 2,
    JobClass.STARTS: 1,
    JobClass.CREATES: 1,
}
SLOW_SCAN_SECONDS = 0.05  # a scan without dead entries in its way takes a fraction of that


class Demand:
    """Counts the jobs held, and those requested but not yet received."""

    def __init__(
        self, limits: Mapping[str, int | None], concurrency: int, *, lines: Set[JobClass] = frozenset()
    ) -> None:
        self._limits = limits
        self._shared = concurrency
        self._own = OWN_SLOTS if lines else dict.fromkeys(JobClass, 0)
        self._lined: Counter[JobClass] = Counter()
        self._held: Counter[str] = Counter()
        self._total = 0
        self._mean_seconds = 1.0  # moving average of run times; starts high, so that nothing is prefetched at first

    def room(self) -> tuple[int, dict[str, int]]:
        """How many jobs can be claimed now: in all, and at most of each kind."""
        slots = self._shared + self._own[JobClass.WATCHING] - self._shared_by_lines()
        ahead = min(PREFETCH_MAX, int(slots * PREFETCH_SECONDS / self._mean_seconds))
        room = min(slots + ahead - self._total, BATCH_MAX)
        if room <= 0:
            return 0, {}
        at_most = {
            kind: room if limit is None else min(room, limit - self._held[kind]) for kind, limit in self._limits.items()
        }
        at_most = {kind: count for kind, count in at_most.items() if count > 0}
        return (room, at_most) if at_most else (0, {})

    def line_room(self, job_class: JobClass) -> int:
        """How many jobs of a lined class can start now."""
        watching = max(0, self._total - self._own[JobClass.WATCHING])
        shared = max(0, self._shared - watching - self._shared_by_lines())
        return max(0, self._own[job_class] - self._lined[job_class]) + shared

    def add_lined(self, job_class: JobClass, jobs: int) -> None:
        self._lined[job_class] += jobs

    def _shared_by_lines(self) -> int:
        return sum(max(0, jobs - self._own[job_class]) for job_class, jobs in self._lined.items())

    def reserve(self, request: ClaimRequest) -> None:
        """Count the requested jobs as held until `confirm`."""
        self._total += request.limit
        for kind, count in request.at_most.items():
            self._held[kind] += count

    def confirm(self, request: ClaimRequest, claimed: list[ClaimedJob]) -> None:
        """Replace the reservation by the jobs that were claimed."""
        self._total += len(claimed) - request.limit
        for kind, count in request.at_most.items():
            self._held[kind] -= count
        for job in claimed:
            self._held[job.kind] += 1

    def is_lined(self, job: ClaimedJob) -> bool:
        return job.kind not in self._limits

    def confirm_cancelled(self, claimed: list[ClaimedJob]) -> None:
        """Count jobs that were claimed only to be ended."""
        for job in claimed:
            if self.is_lined(job):
                self._lined[class_of(job.kind).job_class] += 1
            else:
                self._total += 1
                self._held[job.kind] += 1

    def release(self, job: ClaimedJob) -> None:
        if self.is_lined(job):
            self._lined[class_of(job.kind).job_class] -= 1
            return
        self._total -= 1
        self._held[job.kind] -= 1

    def record_run(self, seconds: float) -> None:
        self._mean_seconds += 0.05 * (max(seconds, 1e-6) - self._mean_seconds)

    def reset_pace(self) -> None:
        """Prefetched jobs waited too long: stop prefetching until runs are short again."""
        self._mean_seconds = 1.0

    @property
    def kinds(self) -> Set[str]:
        return self._limits.keys()


class ScanFloors:
    """Where the claim's scan of each kind starts: at the last job claimed, past the dead entries before it.

    While a transaction holds an old snapshot, vacuum can't remove dead entries, and each claim would walk over all of
    them. Jobs below a floor (from a long transaction, or released) are found by a full scan. Without old snapshots a
    full scan costs nothing and nearly every scan is one; a slow full scan may take a twentieth of the time, and a
    sixtieth while there are enough jobs above the floors.
    """

    def __init__(self) -> None:
        self._floors: dict[str, tuple[datetime, int]] = {}
        self._full_scan_at = float("-inf")
        self._full_scan_seconds = 0.0
        self._was_short = True

    def choose(self, now: float) -> Mapping[str, tuple[datetime, int]]:
        """The floors for a claim now; empty for a full scan."""
        can_wait = self._full_scan_seconds > SLOW_SCAN_SECONDS and not self._was_short
        if now < (self._full_scan_at + 60 * self._full_scan_seconds if can_wait else self.full_scan_from):
            return self._floors
        return {}

    @property
    def full_scan_from(self) -> float:
        """When a full scan is affordable again."""
        return self._full_scan_at + 20 * self._full_scan_seconds

    def record_scan(self, request: ClaimRequest, claimed: list[ClaimedJob], *, sent: float, now: float) -> None:
        if not request.floors:
            self._full_scan_at = now
            self._full_scan_seconds = now - sent
        self._was_short = bool(request.floors) and len(claimed) < request.limit
        for job in claimed:
            self._floors[job.kind] = (job.due_at, job.id)

    def reset(self) -> None:
        self._floors.clear()
        self._full_scan_at = float("-inf")
