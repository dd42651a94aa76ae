"""A cursor decodes to what was encoded, and nothing else decodes."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import Refused
from server.events.event import Cursor

EPOCHS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
POSITIONS = st.integers(min_value=0, max_value=2**63 - 1)


@given(EPOCHS, POSITIONS)
def test_a_cursor_survives_the_way_to_the_client_and_back(epoch: int, position: int):
    written = str(Cursor(epoch, position))
    assert Cursor.parse(written) == Cursor(epoch, position)
    assert written.isascii()
    assert all(each.isalnum() or each in "-_" for each in written)


@given(st.text())
def test_nonsense_is_refused(value: str):
    with pytest.raises(Refused) as refused:
        Cursor.parse(value)
    assert refused.value.code == "INVALID_CURSOR"


GOOD = str(Cursor(7, 7))


@pytest.mark.parametrize(
    "value",
    [
        "",
        GOOD[:-1],
        GOOD + "A",
        GOOD + "=",
        GOOD[:-1] + "!",
        GOOD[:-1] + "é",
        GOOD[:-1] + "1",  # the same bytes with stray bits at the end
        urlsafe_b64encode(b"\x02" + bytes(16)).rstrip(b"=").decode(),  # a version to come
        urlsafe_b64encode(b"\x01" + bytes(8) + b"\xff" * 8).rstrip(b"=").decode(),  # before the beginning
    ],
)
def test_what_was_tampered_with_is_refused(value: str):
    with pytest.raises(Refused) as refused:
        Cursor.parse(value)
    assert refused.value.code == "INVALID_CURSOR"
