"""Create an instance and follow it until it is READY, with gql.

pip install "gql[aiohttp,websockets]"
PILOTLIGHT_TOKEN=pl_... python create_with_gql.py trainer
"""

import asyncio
import os
import sys
from typing import Any

from gql import Client, GraphQLRequest
from gql.transport.aiohttp import AIOHTTPTransport
from gql.transport.exceptions import TransportError, TransportQueryError
from gql.transport.websockets import WebsocketsTransport

URL = os.environ.get("PILOTLIGHT_URL", "http://127.0.0.1:8000/graphql")
AUTHORIZATION = {"Authorization": f"Bearer {os.environ['PILOTLIGHT_TOKEN']}"}

QUOTE = """
    query Quote($input: QuoteInput!) {
      quote(input: $input) { best { region billingMode } pricePerHour { amountMicros currency } errors { message } }
    }
"""
CREATE = """
    mutation Create($input: CreateInstanceInput!) {
      createInstance(input: $input) {
        operation { id }
        errors { code message path }
      }
    }
"""
FOLLOW = """
    subscription Follow($id: ID!) {
      operationUpdated(id: $id) {
        operation {
          status phase progress
          error { code message retryable }
          instance { name status endpoints { address } }
        }
      }
    }
"""
PRODUCT = {"productName": "RTX 4090 24GB"}


async def main(name: str) -> None:
    # Queries and mutations over HTTP.
    async with Client(transport=AIOHTTPTransport(URL, headers=AUTHORIZATION)) as http:
        quote = (await http.execute(GraphQLRequest(QUOTE, variable_values={"input": PRODUCT})))["quote"]
        if quote["best"] is None:
            sys.exit("No region can serve this now.")
        dollars = quote["pricePerHour"]["amountMicros"] / 1_000_000
        print(f"{quote['best']['region']}, {quote['best']['billingMode']}: {dollars:.4f} USD an hour")

        # The key makes it safe to run this again: the same key never creates a second instance.
        wanted = {
            **PRODUCT,
            "name": name,
            "image": "nginx",
            "ports": [{"port": 80}],
            "idempotencyKey": f"create-{name}",
        }
        answer = (await http.execute(GraphQLRequest(CREATE, variable_values={"input": wanted})))["createInstance"]
    if answer["errors"]:
        sys.exit("\n".join(f"{error['code']}: {error['message']}" for error in answer["errors"]))

    # Subscriptions over WebSocket. This one begins with the operation as it is, so nothing can be missed before it.
    operation: dict[str, Any] = {"status": "QUEUED", "error": None}
    socket = WebsocketsTransport(URL.replace("http", "ws", 1), init_payload=AUTHORIZATION)
    async with Client(transport=socket) as session:
        request = GraphQLRequest(FOLLOW, variable_values={"id": answer["operation"]["id"]})
        async for message in session.subscribe(request):
            operation = message["operationUpdated"]["operation"]
            print(f"{operation['progress']:3} %  {operation['phase']}")
    if operation["status"] != "SUCCEEDED":
        sys.exit(f"{operation['status']}: {operation['error']}")
    instance = operation["instance"]
    print(f"{instance['name']} is {instance['status']}: {instance['endpoints'][0]['address']}")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except TransportQueryError as refused:
        # An error of the request itself: no token, too many requests, a fault of the server.
        sys.exit(f"refused: {refused.errors}")
    except TransportError as lost:
        sys.exit(f"no answer ({type(lost).__name__}). Run it again: the key makes that safe.")
