"""A cursor decodes to what was encoded, nothing else decodes, and it tells nothing."""

import math
from base64 import urlsafe_b64encode
from datetime import timedelta
from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.clock import now
from server.db.database import Database
from server.db.seals import Seal, Seals
from server.errors import CursorExpired, Refused
from server.events.cursors import Cursors
from server.events.event import Cursor

EPOCHS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
POSITIONS = st.integers(min_value=0, max_value=2**63 - 1)


class Loaded(Seals):
    """With a key that is not in a database."""

    def __init__(self, key: bytes) -> None:
        self._cursors = Seal(key, b"cursor")
        self._jobs = Seal(key, b"job")
        self.plain_cursors_until = None


SEALS = Loaded(bytes(32))
CURSORS = Cursors(SEALS)
OTHERS = Cursors(Loaded(b"another" + bytes(32)))


@given(EPOCHS, POSITIONS)
def test_a_cursor_survives_the_way_to_the_client_and_back(epoch: int, position: int):
    cursor = Cursor(epoch, position)
    of_event, of_state = CURSORS.of_event(cursor), CURSORS.of_state(cursor)
    assert CURSORS.parse(of_event) == CURSORS.parse(of_state) == cursor
    assert all(each.isascii() and (each.isalnum() or each in "-_") for each in of_event + of_state)
    assert CURSORS.of_event(cursor) == of_event
    assert CURSORS.of_state(cursor) != of_state
    for text in (of_event, of_state):
        with pytest.raises(Refused):
            OTHERS.parse(text)


@given(st.text())
def test_nonsense_is_refused(value: str):
    with pytest.raises(Refused) as refused:
        CURSORS.parse(value)
    assert refused.value.code == "INVALID_CURSOR"


GOOD = CURSORS.of_event(Cursor(7, 7))


@pytest.mark.parametrize(
    "value",
    [
        "",
        GOOD[:-1],
        GOOD + "A",
        GOOD + "=",
        GOOD[:-1] + "!",
        GOOD[:-1] + "\u00e9",
        GOOD[:-1] + ("1" if GOOD[-1] != "1" else "2"),
        "A" + GOOD[1:] if GOOD[0] != "A" else "B" + GOOD[1:],
        urlsafe_b64encode(b"\x02" + bytes(16)).rstrip(b"=").decode(),  # a version that never was
        urlsafe_b64encode(b"\x01" + bytes(8) + b"\xff" * 8).rstrip(b"=").decode(),  # before the beginning
    ],
)
def test_what_was_tampered_with_is_refused(value: str):
    with pytest.raises(Refused) as refused:
        CURSORS.parse(value)
    assert refused.value.code == "INVALID_CURSOR"


def test_neighbours_have_nothing_in_common():
    """Each bit of the next cursor, and of the next job's id, is as likely to differ as not."""
    for seal in (SEALS.cursors, SEALS.jobs):
        closed = [int.from_bytes(seal.close(pack(">q", number))) for number in range(2000)]
        flips = [(one ^ other).bit_count() for one, other in pairwise(closed)]
        # 128 bits: the mean of 2000 is 64, give or take 0.13.
        assert math.isclose(sum(flips) / len(flips), 64, abs_tol=1)
        assert len(set(closed)) == len(closed)


def plain(epoch: int, position: int) -> str:
    return urlsafe_b64encode(pack(">Bqq", 1, epoch, position)).rstrip(b"=").decode()


def test_plain_cursors_of_before_are_accepted_for_a_while():
    seals = Loaded(bytes(32))
    cursors = Cursors(seals)
    with pytest.raises(CursorExpired):
        cursors.parse(plain(-5, 7))
    seals.plain_cursors_until = now() + timedelta(minutes=1)
    assert cursors.parse(plain(-5, 7)) == Cursor(-5, 7)
    seals.plain_cursors_until = now() - timedelta(minutes=1)
    with pytest.raises(CursorExpired):
        cursors.parse(plain(-5, 7))


async def test_every_process_has_the_same_key(database: Database):
    one, other = Seals(database), Seals(database)
    with pytest.raises(LookupError):
        Cursors(one).of_event(Cursor(1, 1))
    await one.load()
    await other.load()
    assert Cursors(other).parse(Cursors(one).of_event(Cursor(3, 4))) == Cursor(3, 4)
    assert one.jobs.open(other.jobs.close(b"12345678")) == b"12345678"
    assert one.cursors.open(other.jobs.close(b"12345678")) is None
