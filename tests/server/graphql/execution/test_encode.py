"""Responses are valid JSON, whatever text a request made them repeat."""

from enum import StrEnum
from typing import Any

import orjson
import pytest

from server.graphql.execution.encode import encoded


class Word(StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    "value", [1, "é", Word.ONE, None, {"a": [1.5, True]}], ids=["int", "str", "enum", "null", "dict"]
)
def test_a_value_is_read_back_as_it_was(value: Any):
    assert orjson.loads(encoded({"data": value})) == {"data": value}


def test_half_a_surrogate_pair_is_escaped():
    assert encoded({"data": "\ud800"}) == b'{"data": "\\ud800"}'
