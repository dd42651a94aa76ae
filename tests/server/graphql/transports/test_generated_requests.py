"""Requests generated from the schema: none breaks the server, none reveals internal details."""

import asyncio
import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.graphql import nodes

from tests.support.api import Api
from tests.support.api_server import Server

EXAMPLES = 4  # for each of some seventy fields
PAGE = re.compile(r"first: -?\d+")
LEAKS = re.compile(r"Traceback|asyncpg|sqlalchemy|pgproto|File \\?\"|\.py\b|SELECT |INSERT |object at 0x", re.I)

for scalar, values in {
    "DateTime": st.sampled_from(["2026-01-01T00:00:00Z", "2026-13-01", "", "0001-01-01T00:00:00+23:59", "9999-12-31"]),
    "BigInt": st.sampled_from(["0", "-1", "9223372036854775807", "99999999999999999999", "x"]),
    "Duration": st.sampled_from(["PT1S", "P1D", "PT0S", "-PT5M", "30", "", "P999999999D"]),
}.items():
    schemathesis.graphql.scalar(scalar, values.map(nodes.String))


def problems(url: str, token: str, number: int, examples: int) -> list[str]:
    """What was wrong about any answer, with the document that it was to."""
    headers = {"authorization": f"Bearer {token}"}
    found: list[str] = []
    asked = 0
    for each in schemathesis.graphql.from_url(url, headers=headers).get_all_operations():
        operation = each.ok()

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            nonlocal asked
            asked += 1
            if asked % 4:  # a page of any size is soon refused, and then nothing behind it is tried
                case.body = PAGE.sub("first: 7", case.body)
            response = case.call(headers=headers)
            text = response.text
            codes = {error.get("extensions", {}).get("code") for error in response.json().get("errors", [])}
            if response.status_code >= 500 or "INTERNAL" in codes or None in codes or LEAKS.search(text):
                found.append(f"{response.status_code} {text[:300]} to {case.body}")

        check()
    assert asked > 100
    return found


async def found(server: Server, token: str, number: int, examples: int = EXAMPLES) -> list[str]:
    return await asyncio.to_thread(problems, f"http://{server.address}/graphql", token, number, examples)


@pytest.mark.slow
async def test_no_generated_request_causes_an_internal_error_or_a_leak(api: Api):
    assert await found(api.server, api.token, 1) == []
