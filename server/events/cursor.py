"""A reader's place in the log, as an opaque string that only we take apart."""

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

from server.errors import Refused

VERSION = 1
_LAYOUT = struct.Struct(">Bqq")
_LENGTH = 23  # characters, without padding


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything up to and including `position` of the log called `epoch` has been seen.

    A position alone would be taken for a place in any log: after a restored backup it would silently skip what
    was written since.
    """

    epoch: int
    position: int

    def __str__(self) -> str:
        return urlsafe_b64encode(_LAYOUT.pack(VERSION, self.epoch, self.position)).rstrip(b"=").decode()

    @classmethod
    def parse(cls, value: str) -> "Cursor":
        """Refuses whatever `str(cursor)` can't have made."""
        if len(value) != _LENGTH:
            raise invalid_cursor()
        try:
            version, epoch, position = _LAYOUT.unpack(urlsafe_b64decode(value + "="))
        except (binascii.Error, struct.error, ValueError):
            raise invalid_cursor() from None
        cursor = cls(epoch, position)
        if version != VERSION or position < 0 or str(cursor) != value:
            raise invalid_cursor()
        return cursor


def invalid_cursor() -> Refused:
    """It was never handed out by this log."""
    return Refused("INVALID_CURSOR", "This cursor was not handed out here; start again without one.", ("after",))
