"""Create an instance with a client that is generated from the schema: every field, enum and refusal has its type.

pip install -r requirements.txt
ariadne-codegen --config ariadne-codegen.toml
PILOTLIGHT_TOKEN=pl_... python create.py trainer
"""

import asyncio
import os
import sys

from pilotlight_client import CreateInstanceInput, OperationStatus, Pilotlight, PortInput
from pilotlight_client.create_instance import CreateInstanceCreateInstanceErrorsNoCapacity
from pilotlight_client.exceptions import GraphQLClientError

URL = os.environ.get("PILOTLIGHT_URL", "http://127.0.0.1:8000/graphql")
AUTHORIZATION = {"Authorization": f"Bearer {os.environ['PILOTLIGHT_TOKEN']}"}
OPEN = (OperationStatus.QUEUED, OperationStatus.RUNNING)


async def main(name: str) -> None:
    async with Pilotlight(URL, headers=AUTHORIZATION) as pilotlight:
        wanted = CreateInstanceInput(
            name=name,
            productName="RTX 4090 24GB",
            image="nginx",
            ports=[PortInput(port=80)],
            idempotencyKey=f"create-{name}",
        )
        created = (await pilotlight.create_instance(wanted)).createInstance
        for error in created.errors:
            print(f"{error.code}: {error.message}", file=sys.stderr)
            if isinstance(error, CreateInstanceCreateInstanceErrorsNoCapacity):
                for attempt in error.attempts:
                    print(f"  {attempt.region}: {attempt.message}", file=sys.stderr)
        if created.operation is None:
            sys.exit(1)

        while True:
            # More than httpx's default: the response comes after up to 30 seconds.
            operation = (await pilotlight.await_operation(created.operation.id, timeout=45)).awaitOperation
            if operation is None or operation.status not in OPEN:
                break
    if operation is None:
        sys.exit("It is gone.")
    if operation.status is not OperationStatus.SUCCEEDED:
        sys.exit(f"{operation.status}: {operation.error}")
    instance = operation.instance
    print(f"{instance.name} is {instance.status} since {instance.readyAt:%H:%M:%S}: {instance.endpoints[0].address}")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except GraphQLClientError as refused:
        # An error of the request itself: no token, too many requests, a fault of the server.
        sys.exit(f"refused: {refused}")
