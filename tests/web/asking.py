"""Asking the server that a page talks to, past the page."""

from typing import Any

import aiohttp

from tests.processes import Up


async def ask(running: Up, document: str, **variables: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {running.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(running.graphql_url, json={"query": document, "variables": variables}) as response,
    ):
        answer = await response.json()
    assert "errors" not in answer, answer
    return dict(answer["data"])
