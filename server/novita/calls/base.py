"""What every group of calls builds on."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from server.novita.call import Call
from server.novita.fields import Fields
from server.novita.priority import Priority

T = TypeVar("T")


class Caller(Protocol):
    """The way to the provider; another version of its API would only need another of these."""

    async def call(self, call: Call, read: Callable[[Fields], T], *, priority: Priority) -> T: ...


class Calls:
    """A group of calls over one way."""

    _caller: Caller


def nothing(_: Fields) -> None:
    """For calls whose answer says nothing: the HTTP status is all there is to rely on."""
