"""One subscription of one client: a place in a cohort, with no task, generator or queue of its own while it is live."""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from server.observe import metrics

UNSETTLED = -1  # the position of who has not begun
Errors = list[dict[str, Any]]  # as clients see them


@dataclass(frozen=True, slots=True)
class Message:
    """Executed and serialised once for all. `body` is the result with the brace that ends a WebSocket message."""

    position: int
    version: int
    cursor: str | None
    body: bytes
    is_last: bool
    made_at: float


class Home(Protocol):
    """What a member needs of its cohort."""

    def leave(self, member: "Member") -> None: ...

    def resume(self, member: "Member") -> None: ...


class Member(ABC):
    """`position` and `version` are the last that it was sent, or did not want."""

    __slots__ = ("home", "is_over", "position", "task", "version")

    def __init__(self) -> None:
        self.home: Home | None = None
        self.position = UNSETTLED
        self.version = 0
        self.is_over = False
        self.task: asyncio.Task[None] | None = None  # only while it is not live

    def deliver(self, message: Message) -> None:
        if message.position <= self.position:
            return
        self.position = message.position
        if message.version:
            if message.version <= self.version:
                return
            self.version = message.version
        metrics.MESSAGES.add()
        self.send(message)
        if message.is_last:
            self.finish(None)

    def finish(self, errors: Errors | None) -> None:
        """It has come to its end by itself, or failed."""
        if not self.is_over:
            self.leave()
            self.say_end(errors)

    def leave(self) -> None:
        """Nothing more is sent from here on."""
        if self.is_over:
            return
        self.is_over = True
        if self.home is not None:
            self.home.leave(self)
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
        self.task = None

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether the client must read before more can be sent."""

    @abstractmethod
    async def room(self) -> None:
        """Until the client has read, or is gone."""

    @abstractmethod
    def wait_for_room(self) -> None:
        """Have `resume` called when there is room again."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Hand one message over."""

    @abstractmethod
    def say_end(self, errors: Errors | None) -> None:
        """Tell the client that nothing more comes, and why."""
