"""Limits how often an address may present a token that turns out to be wrong."""

from server.batching import KeyedBuckets
from server.errors import PilotlightError


class TooManyWrongTokens(PilotlightError):
    """The token was not looked up; wait before the next one."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__("Too many wrong tokens from this address.")
        self.wait_ms = wait_ms


class WrongTokens:
    """A bucket per address. Each look-up takes one from it, and a right token gives it back."""

    def __init__(self, per_minute: int) -> None:
        """0 turns it off."""
        self._buckets = KeyedBuckets[str](per_minute)

    def take(self, address: str) -> None:
        """Raises TooManyWrongTokens."""
        wait = self._buckets.take(address)
        if wait is not None:
            raise TooManyWrongTokens(max(1, round(wait * 1000)))

    def give_back(self, address: str) -> None:
        self._buckets.give_back(address)
