"""GraphQL requests to the page's server, without the page."""

from typing import Any

import aiohttp

from tests.support.processes import Up


async def ask(running: Up, document: str, **variables: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {running.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(running.graphql_url, json={"query": document, "variables": variables}) as response,
    ):
        answer = await response.json()
    assert "errors" not in answer, answer
    return dict(answer["data"])
