"""Everything around one instance: private image, volume, template, metrics, logs, saved image, upgrade, clean end.

Nothing is left at the provider, also if a step fails. Nothing but aiohttp.

pip install aiohttp
PILOTLIGHT_TOKEN=pl_... REGISTRY_PASSWORD=... API_SECRET=... python whole_story.py trainer
"""

import asyncio
import os
import sys
from typing import Any

import aiohttp

URL = os.environ.get("PILOTLIGHT_URL", "http://127.0.0.1:8000/graphql")
HEADERS = {"Authorization": f"Bearer {os.environ['PILOTLIGHT_TOKEN']}"}
REGISTRY, PRODUCT, REGION = "registry.example.test", "RTX 4090 24GB", "US-CA-06"
MOST_ATTEMPTS = 8
PAUSE = 0.5

AWAIT = (
    "query ($id: ID!) { awaitOperation(id: $id, timeout: 30) { status error { code message } instance { status } } }"
)
VOLUME = "query ($id: ID!) { node(id: $id) { ... on Volume { status failure { code message } } } }"
LOOK = """
    query ($id: ID!) {
      instanceMetrics(instanceId: $id) { gpu { gpuId points { at percent } } }
      instanceLog(instanceId: $id, tail: 5) { text }
      instanceAccess(instanceId: $id) { ssh { command } }
    }
"""


class Refused(Exception):
    """The server refused a request, or an operation failed."""


class Api:
    def __init__(self, http: aiohttp.ClientSession, name: str) -> None:
        self.http = http
        self.name = name

    async def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Send until there is a response; mutations have a key, or may be repeated as they are."""
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                async with self.http.post(URL, json={"query": query, "variables": variables}) as response:
                    answer = await response.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError, ValueError) as lost:
                print(f"attempt {attempt}: {type(lost).__name__}", file=sys.stderr)
            else:
                errors = answer.get("errors") or []
                if not errors:
                    return answer["data"]
                if not all(error.get("extensions", {}).get("retryable") for error in errors):
                    raise Refused(str(errors))
            await asyncio.sleep(PAUSE * attempt)
        raise Refused(f"no answer after {MOST_ATTEMPTS} attempts")

    async def change(self, mutation: str, selected: str, **fields: Any) -> dict[str, Any]:
        """One mutation; its input type has its name."""
        kind = f"{mutation[0].upper()}{mutation[1:]}Input"
        wanted = f"{selected} errors {{ code message }}"
        document = f"mutation ($input: {kind}!) {{ {mutation}(input: $input) {{ {wanted} }} }}"
        payload = (await self.ask(document, input=fields))[mutation]
        if payload["errors"]:
            raise Refused(f"{mutation}: {payload['errors']}")
        return payload

    async def operate(self, mutation: str, **fields: Any) -> str:
        """A mutation that begins an operation, and its end. Returns the instance's id."""
        fields["idempotencyKey"] = f"{mutation}-{self.name}"
        payload = await self.change(mutation, "instance { id } operation { id }", **fields)
        operation: dict[str, Any] = {"status": "QUEUED"}
        while operation["status"] in ("QUEUED", "RUNNING"):
            operation = (await self.ask(AWAIT, id=payload["operation"]["id"]))["awaitOperation"]
        if operation["status"] != "SUCCEEDED":
            raise Refused(f"{mutation}: {operation['error']}")
        print(f"{mutation}: {operation['instance']['status']}")
        return payload["instance"]["id"]

    async def volume_is(self, id: str, *statuses: str | None) -> None:
        """Wait for a status of the volume; None: it is gone."""
        while True:
            volume = (await self.ask(VOLUME, id=id))["node"]
            status = volume and volume["status"]
            if status in statuses:
                return
            if status == "FAILED":
                raise Refused(f"the volume failed: {volume['failure']}")
            await asyncio.sleep(PAUSE)


async def tell(api: Api, name: str) -> None:
    undo: list[Any] = []  # what to delete, newest last
    try:
        auth = (
            await api.change(
                "createRegistryAuth",
                "registryAuth { id }",
                name=REGISTRY,
                username="robot",
                password=os.environ["REGISTRY_PASSWORD"],
                idempotencyKey=f"auth-{name}",
            )
        )["registryAuth"]["id"]
        undo.append(lambda: api.change("deleteRegistryAuth", "deletedId", id=auth))

        volume = (
            await api.change(
                "createVolume",
                "volume { id }",
                name=f"{name}-data",
                region=REGION,
                sizeGb=50,
                idempotencyKey=f"volume-{name}",
            )
        )["volume"]["id"]
        undo.append(lambda: delete_volume(api, volume))
        await api.volume_is(volume, "AVAILABLE")
        print("the volume is AVAILABLE")

        template = (
            await api.change(
                "createTemplate",
                "template { id }",
                name=f"{name}-template",
                image=f"{REGISTRY}/team/trainer:1.4",
                registryAuthId=auth,
                ports=[{"port": 8080}],
                idempotencyKey=f"template-{name}",
            )
        )["template"]["id"]
        undo.append(lambda: api.change("deleteTemplate", "deletedId", id=template))

        instance = await api.operate(
            "createInstance",
            name=name,
            productName=PRODUCT,
            templateId=template,
            volumes=[{"id": volume, "mountPath": "/data"}],
            env=[{"key": "API_SECRET", "value": os.environ["API_SECRET"], "secret": True}],
            lifetime={"maxDuration": 3600, "onEnd": "DELETE"},  # also if this program is killed
        )
        undo.append(lambda: api.operate("deleteInstance", id=instance))

        seen = await api.ask(LOOK, id=instance)
        points = [point["percent"] for gpu in seen["instanceMetrics"]["gpu"] for point in gpu["points"]]
        print(f"GPU: {sum(points) / len(points):.0f} %" if points else "GPU: no samples yet")
        print(f"log: {seen['instanceLog']['text'].splitlines()[0]}")
        print(f"access: {seen['instanceAccess']['ssh']['command'].split()[0]}")

        await api.operate("stopInstance", id=instance)  # an image is saved of a stopped instance
        await api.operate("saveImage", id=instance, image=f"{REGISTRY}/team/trainer:saved", registryAuthId=auth)
        await api.operate("upgradeInstance", id=instance, image=f"{REGISTRY}/team/trainer:saved")  # and starts it
    finally:
        for step in reversed(undo):
            await step()
    print("nothing is left")


async def delete_volume(api: Api, volume: str) -> None:
    await api.change("deleteVolume", "volume { status }", id=volume)
    await api.volume_is(volume, None)


async def main(name: str) -> None:
    timeout = aiohttp.ClientTimeout(total=45)  # more than awaitOperation waits
    async with aiohttp.ClientSession(headers=HEADERS, timeout=timeout) as http:
        try:
            await tell(Api(http, name), name)
        except Refused as refused:
            sys.exit(str(refused))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
