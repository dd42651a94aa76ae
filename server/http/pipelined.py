"""Starts pipelined requests one by one, so that connections full of them leave the event loop to the others."""

import asyncio
from collections import deque
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

# Seconds between two of all connections of a listener. A few clients pipeline, and each waits for its own responses;
# twenty connections full of requests would start one each in every iteration of the loop.
PAUSE = 0.001


class HeldFlow(FlowControl):
    """Flow control of a connection that is not read from while earlier requests wait for their responses."""

    is_held = False

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class PipelinedStarts:
    """A connection has at most one request here, so connections take turns."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, start: Callable[[], None]) -> None:
        self._waiting.append(start)
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PAUSE, self._start_next)

    def _start_next(self) -> None:
        self._timer = None
        start = self._waiting.popleft()
        if self._waiting:
            self._set_timer()
        start()
