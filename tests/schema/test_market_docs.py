"""The examples of docs/market.md are executed as they stand there."""

import re

import pytest

from tests.support.api import Api
from tests.support.processes import ROOT

EXAMPLES = re.findall(r"```graphql\n(.*?)```", (ROOT / "docs/market.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_the_example_is_answered_without_an_error(api: Api, number: int):
    answer = await api.ask(EXAMPLES[number])

    for name, payload in answer.data.items():
        if isinstance(payload, dict) and "errors" in payload:
            assert payload["errors"] == [], name
            assert next(iter(payload.values())) is not None


def test_the_page_has_a_read_an_alert_and_a_wait():
    first = [re.findall(r"\b(market|createAlert|createInstance)\(", each)[0] for each in EXAMPLES]
    assert first == ["market", "createAlert", "createInstance"]
