"""Watch every change for good, with gql: no event is missed, over lost connections and own restarts.

pip install "gql[websockets]"
PILOTLIGHT_TOKEN=pl_... python watch_with_gql.py cursor.txt
"""

import asyncio
import os
import random
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from gql import Client, GraphQLRequest
from gql.transport.exceptions import TransportError, TransportQueryError
from gql.transport.websockets import WebsocketsTransport
from websockets.exceptions import ConnectionClosed, InvalidHandshake

URL = os.environ.get("PILOTLIGHT_URL", "http://127.0.0.1:8000/graphql").replace("http", "ws", 1)
AUTHORIZATION = {"Authorization": f"Bearer {os.environ['PILOTLIGHT_TOKEN']}"}
HEAD = "{ serverInfo { eventLog { head } } }"
EVENTS = """
    subscription Events($after: String!) {
      instanceEvents(after: $after) { cursor type instanceId status operationSnapshot { kind status } }
    }
"""
LONGEST_PAUSE = 30.0
CUT_OFF = (TransportError, ConnectionClosed, InvalidHandshake, OSError, TimeoutError)
FORBIDDEN = 4403


async def watch(cursor_file: Path) -> None:
    pause = 1.0
    while True:
        try:
            # The server pings every 25 s: a minute without a word means that the connection is dead.
            transport = WebsocketsTransport(URL, init_payload=AUTHORIZATION, keep_alive_timeout=60)
            async with Client(transport=transport) as session:
                if not cursor_file.exists():  # the first time: from now on
                    keep(cursor_file, (await session.execute(GraphQLRequest(HEAD)))["serverInfo"]["eventLog"]["head"])
                request = GraphQLRequest(EVENTS, variable_values={"after": cursor_file.read_text()})
                async with aclosing(session.subscribe(request)) as messages:
                    async for message in messages:
                        handle(message["instanceEvents"])
                        # After the work: killed in between, the event comes once more. Before it, it would be lost.
                        keep(cursor_file, message["instanceEvents"]["cursor"])
                        pause = 1.0
        except TransportQueryError as refused:
            # RESUME means: subscribe again with the last cursor. CURSOR_EXPIRED and others need a decision.
            if not all(error.get("extensions", {}).get("retryable") for error in refused.errors or []):
                sys.exit(f"refused: {refused.errors}")
        except CUT_OFF as lost:
            if closed_with(lost) == FORBIDDEN:
                sys.exit("The token is wrong, expired or revoked.")
            print(f"cut off ({type(lost).__name__}), again in about {pause:.0f} s", file=sys.stderr)
        # A restarted server is not met by all its watchers in the same instant.
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, LONGEST_PAUSE)


def handle(event: dict[str, Any]) -> None:
    """Your work. It may be given an event again after a crash, so let it ask what is true before it acts."""
    operation = event["operationSnapshot"]
    news = event["status"] or (operation and operation["status"]) or ""
    print(event["instanceId"], event["type"], news, flush=True)


def keep(file: Path, cursor: str) -> None:
    """Whole or not at all, whatever happens in between."""
    new = file.with_suffix(".new")
    new.write_text(cursor)
    new.replace(file)


def closed_with(lost: BaseException | None) -> int | None:
    """The close code, wherever gql has put it."""
    while lost is not None:
        if isinstance(lost, ConnectionClosed) and lost.rcvd is not None:
            return lost.rcvd.code
        lost = lost.__cause__
    return None


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(watch(Path(sys.argv[1])))
