"""Arguments are typed on the way in and checked on the way out."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from server.errors import StartupProblem
from server.queue.kinds import DECLARED, CreateInstance, Priority, Unreadable, Work, check_handled, from_args, to_args


@dataclass(frozen=True, slots=True)
class Everything(Work):
    kind = "TEST_EVERYTHING"

    id: UUID
    name: str
    count: int
    share: float
    is_on: bool
    maybe: UUID | None
    later: int = 7


WHOLE = Everything(uuid4(), "n", 1, 0.5, True, None)


def test_what_goes_in_comes_out():
    assert from_args("TEST_EVERYTHING", to_args(WHOLE)) == WHOLE
    work = CreateInstance(uuid4(), uuid4())
    assert from_args("CREATE_INSTANCE", to_args(work)) == work


def test_a_field_with_a_default_may_be_missing_and_an_unknown_one_is_passed_over():
    args = to_args(WHOLE).replace('"later":7', '"newer":true')

    assert from_args("TEST_EVERYTHING", args) == WHOLE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"count":1', '"count":"1"', "count: expected int, found str"),
        ('"count":1', '"count":true', "count: expected int, found bool"),
        ('"name":"n"', '"name":null', "name: expected str, found NoneType"),
        ('"maybe":null', '"maybe":"x"', "maybe: badly formed hexadecimal UUID string"),
        ('"count":1,', "", "count is missing"),
    ],
)
def test_a_wrong_argument_is_named(old: str, new: str, message: str):
    args = to_args(WHOLE)
    assert old in args

    with pytest.raises(Unreadable, match=message):
        from_args("TEST_EVERYTHING", args.replace(old, new))


def test_an_unknown_kind_is_unreadable():
    with pytest.raises(Unreadable, match="no such kind of work: NOPE"):
        from_args("NOPE", "{}")


def test_two_kinds_can_not_share_a_name():
    with pytest.raises(TypeError, match="both called CREATE_INSTANCE"):

        class Other(Work):
            kind = "CREATE_INSTANCE"


def test_a_kind_without_a_handler_stops_the_start():
    with pytest.raises(StartupProblem, match="no handler for jobs of kind CREATE_INSTANCE"):
        check_handled({kind: object() for kind in DECLARED if kind != "CREATE_INSTANCE"})


def test_creating_goes_first_and_cleaning_last():
    assert DECLARED["CREATE_INSTANCE"].priority is Priority.HIGH
    assert DECLARED["CLEANUP"].priority is Priority.LOW
