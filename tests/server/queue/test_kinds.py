"""Job arguments are encoded as JSON and checked when they are decoded."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from server.errors import StartupProblem
from server.jobs.registry import check_handled
from server.queue.kinds import (
    DECLARED,
    CreateInstance,
    Priority,
    UnreadableArguments,
    Work,
    from_args,
    to_args,
)


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


def test_arguments_survive_encoding_and_decoding():
    assert from_args("TEST_EVERYTHING", to_args(WHOLE)) == WHOLE
    work = CreateInstance(uuid4(), uuid4())
    assert from_args("CREATE_INSTANCE", to_args(work)) == work


def test_missing_field_gets_its_default_and_an_unknown_one_is_ignored():
    args = to_args(WHOLE).replace('"later":7', '"newer":true')

    assert from_args("TEST_EVERYTHING", args) == WHOLE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"count":1', '"count":"1"', "count: Input should be a valid integer"),
        ('"count":1', '"count":true', "count: Input should be a valid integer"),
        ('"name":"n"', '"name":null', "name: Input should be a valid string"),
        (
            '"maybe":null',
            '"maybe":"x"',
            "maybe: Input should be a valid UUID, invalid character: found `x` at 0",
        ),
        ('"count":1,', "", "count: Field required"),
    ],
)
def test_a_wrong_argument_is_named(old: str, new: str, message: str):
    args = to_args(WHOLE)
    assert old in args

    with pytest.raises(UnreadableArguments, match=message):
        from_args("TEST_EVERYTHING", args.replace(old, new))


def test_arguments_that_are_not_an_object_are_unreadable():
    with pytest.raises(UnreadableArguments, match="TEST_EVERYTHING: Input should be an object"):
        from_args("TEST_EVERYTHING", "[]")


def test_an_unknown_kind_is_unreadable():
    with pytest.raises(UnreadableArguments, match="no such kind of work: NOPE"):
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
