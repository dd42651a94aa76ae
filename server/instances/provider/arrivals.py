"""How long machines move until they run, as the poller sees it: when it is worth to look for one."""

import time
from collections.abc import Hashable

RISE = 0.1  # of the difference, when one took longer
FORGOTTEN_AFTER = 600.0  # seconds


class Arrivals:
    """Keeps near to the fastest ones of a kind: those that were seen late, because a page came late, would make the
    next look late, too."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[Hashable, float]] = {}  # kind, and when the machine was first polled
        self._usual: dict[Hashable, float] = {}

    def began(self, kind: Hashable, novita_id: str) -> None:
        self._began.setdefault(novita_id, (kind, time.monotonic()))

    def arrived(self, novita_id: str) -> None:
        kind, began = self._began.pop(novita_id, (None, 0.0))
        if kind is not None:
            took = time.monotonic() - began
            usual = self._usual.get(kind, took)
            self._usual[kind] = min(took, usual + RISE * (took - usual))

    def expected_at(self, novita_id: str) -> float | None:
        """By the monotonic clock; None if none of its kind was seen yet."""
        kind, began = self._began.get(novita_id, (None, 0.0))
        usual = self._usual.get(kind)
        return None if usual is None else began + usual

    def forget_lost(self) -> None:
        oldest = time.monotonic() - FORGOTTEN_AFTER
        self._began = {id: each for id, each in self._began.items() if each[1] > oldest}
