"""One client's subscription: an entry in a broadcast, without a task or queue of its own while it is live."""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from server.observe import metrics

NOT_STARTED = -1  # position of a subscriber that has not started
Errors = list[dict[str, Any]]  # as clients see them


@dataclass(frozen=True, slots=True)
class Message:
    """Serialised once for all. `body` is the result with the brace that ends a WebSocket message."""

    position: int
    version: int
    cursor: str | None
    body: bytes
    is_last: bool
    made_at: float


class Owner(Protocol):
    """The part of a Broadcast that a subscriber uses."""

    def leave(self, subscriber: "Subscriber") -> None: ...

    def resume(self, subscriber: "Subscriber") -> None: ...


class Subscriber(ABC):
    """`position` and `version` are of the last event that was sent or skipped."""

    __slots__ = ("is_over", "owner", "position", "task", "version")

    def __init__(self) -> None:
        self.owner: Owner | None = None
        self.position = NOT_STARTED
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
        """End it, with errors if it failed."""
        if not self.is_over:
            self.leave()
            self.send_end(errors)

    def leave(self) -> None:
        """Stop sending to it."""
        if self.is_over:
            return
        self.is_over = True
        if self.owner is not None:
            self.owner.leave(self)
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
        self.task = None

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether the client must read before more can be sent."""

    @abstractmethod
    async def wait_until_writable(self) -> None:
        """Wait until the client has read, or is gone."""

    @abstractmethod
    def resume_when_writable(self) -> None:
        """Have `resume` called when there is room again."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send one message."""

    @abstractmethod
    def send_end(self, errors: Errors | None) -> None:
        """Tell the client that the subscription has ended, and why."""
