"""Create an instance exactly once, over any trouble on the way, and wait until it is ready. Nothing but aiohttp.

pip install aiohttp
PILOTLIGHT_TOKEN=pl_... python create_with_aiohttp.py trainer
"""

import asyncio
import os
import random
import sys
from typing import Any

import aiohttp

URL = os.environ.get("PILOTLIGHT_URL", "http://127.0.0.1:8000/graphql")
HEADERS = {
    "Authorization": f"Bearer {os.environ['PILOTLIGHT_TOKEN']}",
    "Accept": "application/graphql-response+json, application/json",
}
CREATE = """
    mutation Create($input: CreateInstanceInput!) {
      createInstance(input: $input) {
        operation { id }
        replayed
        errors {
          code message path
          ... on NoCapacity { attempts { region code message } }
        }
      }
    }
"""
AWAIT = """
    query Await($id: ID!) {
      awaitOperation(id: $id, timeout: 30) {
        status
        error { code message retryable }
        instance { name status endpoints { address } }
      }
    }
"""
MOST_ATTEMPTS = 8
UNHURRIED = aiohttp.ClientTimeout(total=45)  # more than awaitOperation waits


async def ask(session: aiohttp.ClientSession, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Send until there is a response. Only for queries, and for mutations with an idempotency key."""
    for attempt in range(1, MOST_ATTEMPTS + 1):
        pause = min(0.5 * 2**attempt, 30.0) * random.uniform(0.5, 1.0)
        try:
            async with session.post(URL, json={"query": query, "variables": variables}, headers=HEADERS) as response:
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as lost:
            # No response, or a proxy's: it may have been accepted. The key makes a retry safe.
            print(f"attempt {attempt}: {type(lost).__name__}", file=sys.stderr)
        else:
            errors = answer.get("errors") or []
            if not errors:
                return answer["data"]
            said = [error.get("extensions", {}) for error in errors]
            if not all(extensions.get("retryable") for extensions in said):
                sys.exit(f"refused: {errors}")
            # The server says how long to wait: a rate limit, a database that is being restarted.
            pause = max(pause, *(extensions.get("retryAfterMs", 0) / 1000 for extensions in said))
        await asyncio.sleep(pause)
    sys.exit(f"no answer after {MOST_ATTEMPTS} attempts")


async def main(name: str) -> None:
    async with aiohttp.ClientSession(timeout=UNHURRIED) as session:
        wanted = {
            "name": name,
            "productName": "RTX 4090 24GB",
            "image": "nginx",
            "ports": [{"port": 80}],
            # Made once per intention and kept with it (here: from the name), never once per attempt.
            "idempotencyKey": f"create-{name}",
        }
        created = (await ask(session, CREATE, {"input": wanted}))["createInstance"]
        if created["errors"]:
            for error in created["errors"]:
                print(f"{error['code']} {'.'.join(error['path'])}: {error['message']}")
            sys.exit(1)
        print("it had been asked for before" if created["replayed"] else "accepted")

        operation: dict[str, Any] = {"status": "QUEUED"}
        while operation["status"] in ("QUEUED", "RUNNING"):
            operation = (await ask(session, AWAIT, {"id": created["operation"]["id"]}))["awaitOperation"]
    if operation["status"] != "SUCCEEDED":
        sys.exit(f"{operation['status']}: {operation['error']}")
    instance = operation["instance"]
    print(f"{instance['name']} is {instance['status']}: {instance['endpoints'][0]['address']}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
