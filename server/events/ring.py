"""The newest events of the log in memory, without gaps."""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from server.events.event import Event


class Ring:
    """`head` is the position of the last event; live readers have been offered everything up to it."""

    def __init__(self, size: int) -> None:
        self._events: deque[Event] = deque(maxlen=size)
        self.size = size
        self.head = 0

    def restart(self, head: int) -> None:
        self._events.clear()
        self.head = head

    def add(self, event: Event) -> None:
        if event.position != self.head + 1:
            raise ValueError(f"event {event.position} can't follow {self.head}")
        self._events.append(event)
        self.head = event.position

    def covers(self, position: int) -> bool:
        """Whether all events after that position are in the ring (none, if it is at or beyond the head)."""
        return position >= self.head - len(self._events)

    def after(self, position: int) -> Iterator[Event]:
        """The events after that position; check `covers` first."""
        skipped = position - (self.head - len(self._events))
        return islice(self._events, max(skipped, 0), None)
