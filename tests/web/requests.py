"""GraphQL requests to the page's server, without the page."""

from typing import Any

import aiohttp

from tests.support.processes import Up
from tests.support.waiting import until

CREATE = """mutation ($input: CreateInstanceInput!) {
    createInstance(input: $input) { instance { id } errors { code message } } }"""
STATUS = "query ($id: ID!) { instance(id: $id) { status novitaId } }"


async def ask(running: Up, document: str, **variables: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {running.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(running.graphql_url, json={"query": document, "variables": variables}) as response,
    ):
        answer = await response.json()
    assert "errors" not in answer, answer
    return dict(answer["data"])


async def created(running: Up, name: str, **more: Any) -> str:
    """The id of an instance whose create was accepted."""
    given = {"name": name, "productName": "RTX 4090 24GB", "image": "nginx", "ports": [{"port": 80}], **more}
    payload = (await ask(running, CREATE, input=given))["createInstance"]
    assert payload["errors"] == []
    return str(payload["instance"]["id"])


async def has_status(running: Up, id: str, *statuses: str) -> None:
    async def there() -> bool:
        return (await ask(running, STATUS, id=id))["instance"]["status"] in statuses

    await until(there, within=60)


async def ready(running: Up, name: str, **more: Any) -> str:
    """The id of an instance that is READY."""
    id = await created(running, name, **more)
    await has_status(running, id, "READY")
    return id


async def machine_of(running: Up, id: str) -> str:
    """The provider's id of an instance's machine."""
    return str((await ask(running, STATUS, id=id))["instance"]["novitaId"])


def page_at(running: Up, hash: str = "") -> str:
    """The address of a view, such as `#/costs`."""
    return f"{running.graphql_url.removesuffix('/graphql')}/{hash}"
