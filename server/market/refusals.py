"""Refusals because others wait for the same capacity."""

from server.errors import Refused


class QueuedBehind(Refused):
    """Older operations of the project wait for every offer that would fit."""

    def __init__(self, ahead: int) -> None:
        message = f"{ahead} older operations of this project wait for the same capacity; onNoCapacity waits, too."
        super().__init__("QUEUED_BEHIND", message, ("input", "onNoCapacity"))
        self.ahead = ahead
