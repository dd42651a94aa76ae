"""Seeds a small fleet with an example of everything, for screenshots and for tests of every view."""

from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.processes import Up, control
from tests.support.waiting import until

CREATE = """
    mutation ($input: CreateInstanceInput!) {
      createInstance(input: $input) { instance { id } errors { code message } }
    }
"""
STATUS = "query ($id: ID!) { instance(id: $id) { status } }"
FLEET = (
    ("llama-70b-serving", "H100 SXM 80GB", 2, {"team": "research"}),
    ("trainer-nightly", "A100 SXM4 80GB", 4, {"team": "research"}),
    ("embeddings", "L40S 48GB", 1, {"team": "search"}),
    ("notebook-ana", "RTX 4090 24GB", 1, {"owner": "ana"}),
    ("notebook-jun", "RTX 3090 24GB", 1, {"owner": "jun"}),
    ("render-farm-1", "RTX 5090 32GB", 1, {"team": "media"}),
)


@dataclass(frozen=True, slots=True)
class Seeded:
    ready: str
    failed: str


async def seed(running: Up) -> Seeded:
    """Ready ones, one that is stopped, and one whose image can't be pulled, after a region that refused."""
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {running.token}"}) as session:

        async def ask(document: str, **variables: Any) -> dict[str, Any]:
            body = {"query": document, "variables": variables}
            async with session.post(running.graphql_url, json=body) as response:
                answer = await response.json()
            assert "errors" not in answer, answer
            return dict(answer["data"])

        async def create(name: str, product: str, gpus: int, labels: dict[str, str], **more: Any) -> str:
            given = {
                "name": name,
                "productName": product,
                "gpuCount": gpus,
                "image": "nginx:latest",
                "ports": [{"port": 80}, {"port": 22, "type": "tcp"}],
                "labels": [{"key": key, "value": value} for key, value in labels.items()],
                "regions": ["AS-SGP-02", "CN-HK-01", "AS-IN-01", "US-CA-06", "EU-GB-01"],
                **more,
            }
            payload = (await ask(CREATE, input=given))["createInstance"]
            assert payload["errors"] == [], payload
            return str(payload["instance"]["id"])

        async def until_status(id: str, *statuses: str) -> None:
            async def there() -> bool:
                return (await ask(STATUS, id=id))["instance"]["status"] in statuses

            await until(there, within=60)

        made = [await create(*each) for each in FLEET]
        for id in made:
            await until_status(id, "READY")
        await ask("mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }", id=made[4])
        await until_status(made[4], "EXITED")

        route = "POST /gpu/instance/create"
        refused = {"status": 400, "reason": "INSUFFICIENT_RESOURCE", "message": "insufficient resource"}
        faults = [
            {"kind": "error", "routes": [route], "times": 1, **refused},
            {"kind": "pullFailure", "routes": [route], "times": 1},
        ]
        await control(running.ready["simulatorUrl"], "faults", {"faults": faults})
        # No server listens on that port, so its deliveries fail.
        failed = await create(
            "sd-finetune",
            "RTX 4090 24GB",
            1,
            {"team": "media"},
            webhookUrl="http://127.0.0.1:9/events",
            image="no/such",
        )
        await until_status(failed, "FAILED")
        return Seeded(ready=made[0], failed=failed)
