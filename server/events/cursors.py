"""The text of cursors: opaque, so that a client does not learn how many events other projects have."""

import binascii
import os
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode

from server.clock import now
from server.db.seals import TAG_SIZE, Seals
from server.errors import CursorExpired
from server.events.event import Cursor, invalid_cursor

_LAYOUT = struct.Struct(">qq")
_SALT_SIZE = 6
_SIZES = (TAG_SIZE + _LAYOUT.size, TAG_SIZE + _LAYOUT.size + _SALT_SIZE)  # multiples of 3: base64 without padding
_PLAIN = struct.Struct(">Bqq")  # of the release before: a version and the readable position
_PLAIN_LENGTH = 23  # characters, without padding
_PLAIN_VERSION = 1


class Cursors:
    """Writes and reads cursors with the key of the database, so that every process accepts them."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def of_event(self, cursor: Cursor) -> str:
        """Always the same for the same event."""
        return self._text(_LAYOUT.pack(cursor.epoch, cursor.position))

    def of_state(self, cursor: Cursor) -> str:
        """Different each time: whether it has changed would tell that events of other projects were written."""
        return self._text(_LAYOUT.pack(cursor.epoch, cursor.position) + os.urandom(_SALT_SIZE))

    def parse(self, text: str) -> Cursor:
        """Raises Refused (INVALID_CURSOR) for any text that was not written here, and CursorExpired."""
        if len(text) == _PLAIN_LENGTH:
            return self._parse_plain(text)
        raw = _decoded(text, padding="")
        data = self._seals.cursors.open(raw) if len(raw) in _SIZES else None
        if data is None:
            raise invalid_cursor()
        return Cursor(*_LAYOUT.unpack_from(data))

    def _text(self, data: bytes) -> str:
        return urlsafe_b64encode(self._seals.cursors.close(data)).decode()

    def _parse_plain(self, text: str) -> Cursor:
        version, epoch, position = _PLAIN.unpack(_decoded(text, padding="="))
        if version != _PLAIN_VERSION or position < 0:
            raise invalid_cursor()
        until = self._seals.plain_cursors_until
        # Not for ever: with the number in a plain cursor, its owner could search for the log's present end.
        if until is None or now() >= until:
            raise CursorExpired
        return Cursor(epoch, position)


def _decoded(text: str, *, padding: str) -> bytes:
    """Refuses text with other characters, or with stray bits at its end."""
    try:
        raw = urlsafe_b64decode(text + padding)
    except (binascii.Error, ValueError):
        raise invalid_cursor() from None
    if urlsafe_b64encode(raw).decode() != text + padding:
        raise invalid_cursor()
    return raw
