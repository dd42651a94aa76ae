"""A subscriber that never gives up: it resumes from its last cursor at any API that answers."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

EVENTS = "subscription ($after: String) { instanceEvents(after: $after) { id cursor } }"
QUIET_SECONDS = 10.0  # then it connects to another API
STAYS_SECONDS = (2.0, 15.0)  # and then goes elsewhere anyhow


@dataclass
class ResumingSubscriber:
    """What it has seen, in order."""

    cursor: str
    seen: list[str] = field(default_factory=list[str])

    async def follow(self, urls: Sequence[str], token: str, counts: Counter[str], chance: random.Random) -> None:
        """Until it is cancelled."""
        async with aiohttp.ClientSession() as http:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError, OSError):
                    async with asyncio.timeout(chance.uniform(*STAYS_SECONDS)):
                        await self._once(http, chance.choice(urls), token, counts)
                counts["subscribers resumed"] += 1
                await asyncio.sleep(chance.uniform(0, 0.5))

    async def _once(self, http: aiohttp.ClientSession, url: str, token: str, counts: Counter[str]) -> None:
        async with asyncio.timeout(QUIET_SECONDS):
            socket = await http.ws_connect(url, protocols=["graphql-transport-ws"])
        async with socket:
            await socket.send_json({"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}})
            await socket.send_json(
                {"id": "1", "type": "subscribe", "payload": {"query": EVENTS, "variables": {"after": self.cursor}}}
            )
            while True:
                message = await socket.receive(timeout=QUIET_SECONDS)
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return
                if not await self._take(json.loads(message.data), socket, counts):
                    return

    async def _take(self, message: dict[str, Any], socket: Any, counts: Counter[str]) -> bool:
        """False when this subscription is over."""
        if message["type"] == "ping":
            await socket.send_json({"type": "pong"})
        elif message["type"] == "next" and message["payload"].get("data"):
            event = message["payload"]["data"]["instanceEvents"]
            self.seen.append(event["id"])
            self.cursor = event["cursor"]
        elif message["type"] in ("next", "error"):
            errors = message["payload"]["errors"] if message["type"] == "next" else message["payload"]
            code = str(errors[0].get("extensions", {}).get("code", errors[0]["message"]))
            counts[f"subscribers that got {code}"] += 1
            return False
        return message["type"] != "complete"
