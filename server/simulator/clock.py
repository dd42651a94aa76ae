"""Simulated time, which runs `speed` times as fast as real time."""

import time
from collections.abc import Callable


class SimulatedClock:
    """Schedules are in simulated seconds; timestamps in responses are real wall time.

    A client compares timestamps with its own clock, so they must not run ahead of it when the simulation is fast. Only
    durations shrink.
    """

    def __init__(
        self,
        speed: float = 1.0,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.speed = speed
        self.wall = wall
        self._monotonic = monotonic
        self._since = monotonic()
        self._at = 0.0

    def now(self) -> float:
        """Simulated seconds since the start of the world."""
        return self._at + (self._monotonic() - self._since) * self.speed

    def wall_at(self, at: float) -> float:
        """The wall time of the simulated time `at`, at the current speed."""
        return self.wall() + (at - self.now()) / self.speed

    def real_seconds_until(self, at: float) -> float:
        return (at - self.now()) / self.speed

    def set_speed(self, speed: float) -> None:
        self.set_now(self.now())
        self.speed = speed

    def set_now(self, at: float) -> None:
        """Continue from another time, as after a restart."""
        self._at = at
        self._since = self._monotonic()
