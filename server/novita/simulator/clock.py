"""The world's own time: simulated seconds that pass `speed` times as fast as real ones."""

import time
from collections.abc import Callable


class WorldClock:
    """Schedules live in simulated seconds; what clients read is real wall time.

    A client compares timestamps with its own clock, so those must not run ahead of it when
    the simulation is fast. Only durations shrink.
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
        """Simulated seconds since the world began."""
        return self._at + (self._monotonic() - self._since) * self.speed

    def wall_at(self, at: float) -> float:
        """The wall time at which simulated time is, was or will be `at`, at the present speed."""
        return self.wall() + (at - self.now()) / self.speed

    def real_seconds_until(self, at: float) -> float:
        return (at - self.now()) / self.speed

    def after_real(self, seconds: float) -> float:
        """The simulated time that many real seconds from now."""
        return self.now() + seconds * self.speed

    def set_speed(self, speed: float) -> None:
        self.set_now(self.now())
        self.speed = speed

    def set_now(self, at: float) -> None:
        """Go on from another moment; a restarted world continues where wall time says it would be."""
        self._at = at
        self._since = self._monotonic()
