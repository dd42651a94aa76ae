"""Callers who ask for instances and go on asking with the same key until there is an answer, whatever is broken."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

CREATE = """
    mutation ($input: CreateInstanceInput!) {
      createInstance(input: $input) { instance { id } operation { id } replayed errors { code } }
    }
"""
VERB = """
    mutation ($id: ID!, $key: String!) {
      %sInstance(input: {id: $id, idempotencyKey: $key}) { operation { id } errors { code } }
    }
"""
INSTANCE = "query ($id: ID!) { instance(id: $id) { status openOperation { id } } }"
PRODUCT = "RTX 4090 24GB"
REQUEST_SECONDS = 12.0
PATIENCE = 90.0  # seconds after which a caller gives up on an answer
STANDSTILL = ("READY", "EXITED", "FAILED", "DELETED")

Json = dict[str, Any]


@dataclass
class Accounts:
    """What callers know: the only witness of what was promised to them."""

    accepted: dict[str, str] = field(default_factory=dict[str, str])  # name -> id of the instance
    hooked: set[str] = field(default_factory=set[str])  # ids of instances with a webhook
    operations: set[str] = field(default_factory=set[str])
    refused: set[str] = field(default_factory=set[str])  # names that were refused with no doubt
    codes: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    two_for_one_key: list[str] = field(default_factory=list[str])
    unclear_errors: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Answer:
    payload: Json
    was_lost_before: bool  # whether an earlier try may have been done without our learning of it


class Caller:
    def __init__(self, urls: list[str], token: str, accounts: Accounts, chance: random.Random) -> None:
        self._urls, self._token, self._accounts, self._chance = urls, token, accounts, chance
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS))

    async def close(self) -> None:
        await self._http.close()

    async def ask(self, document: str, variables: Json, *, patience: float = PATIENCE) -> Answer | None:
        """Through one process, then through the other; None when there was no answer in all that time."""
        deadline = time.monotonic() + patience
        was_lost, turn = False, self._chance.randrange(2)
        while time.monotonic() < deadline:
            url = self._urls[turn % len(self._urls)]
            turn += 1
            try:
                body = await self._post(url, document, variables)
            except aiohttp.ClientConnectorError:
                self._accounts.counts["requests to a process that was not there"] += 1
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
                was_lost = True
                self._accounts.counts["requests without an answer"] += 1
            else:
                errors: list[Json] = body.get("errors") or []
                if not errors:
                    return Answer(body["data"], was_lost)
                was_lost = True
                self._judge(errors)
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))
        self._accounts.counts["requests given up"] += 1
        return None

    def _judge(self, errors: list[Json]) -> None:
        """A valid request may be told to come again, never that something is wrong with us."""
        for error in errors:
            extensions: Json = error.get("extensions") or {}
            self._accounts.counts[f"answered {extensions.get('code')}"] += 1
            if not extensions.get("retryable"):
                self._accounts.unclear_errors.append(f"{error.get('message')} {extensions}")

    async def _post(self, url: str, document: str, variables: Json) -> Json:
        async with self._http.post(
            url,
            json={"query": document, "variables": variables},
            headers={"authorization": f"Bearer {self._token}"},
        ) as response:
            return await response.json(content_type=None)


class Load:
    """So many callers, each with one instance after the other, until told to stop."""

    def __init__(self, urls: list[str], token: str, *, seed: int, receiver_url: str, pace: float) -> None:
        self.accounts = Accounts()
        self.is_over = asyncio.Event()
        self._urls, self._token, self._seed, self._receiver_url, self._pace = urls, token, seed, receiver_url, pace

    async def run(self, number: int) -> None:
        chance = random.Random(f"{self._seed}:caller {number}")
        caller = Caller(self._urls, self._token, self.accounts, chance)
        try:
            round_ = 0
            while not self.is_over.is_set():
                round_ += 1
                if chance.random() < 0.15:
                    await self._ask_for_nonsense(caller, chance, f"bad-{number}-{round_}")
                await self._live_one_life(caller, chance, f"c{number}-{round_}")
                await asyncio.sleep(chance.uniform(0.2, 1.0) * self._pace)
        finally:
            await caller.close()

    async def _live_one_life(self, caller: Caller, chance: random.Random, name: str) -> None:
        wish: Json = {
            "name": name,
            "productName": PRODUCT,
            "image": "nginx",
            "ports": [{"port": 80}],
            "idempotencyKey": f"key {name}",
            "billing": chance.choice(["SPOT_THEN_ON_DEMAND", "ON_DEMAND"]),
        }
        if has_webhook := chance.random() < 0.4:
            wish["webhookUrl"] = self._receiver_url
        id = await self._create(caller, name, wish, at_once=3 if chance.random() < 0.3 else 1)
        if id is None:
            return
        if has_webhook:
            self.accounts.hooked.add(id)
        if chance.random() < 0.15:
            await asyncio.sleep(chance.uniform(0, 0.5))  # deleted while it is being made
        else:
            await self._stands_still(caller, id)
            for number in range(chance.randrange(3)):
                verb = chance.choice(["stop", "start", "restart"])
                await self._do(caller, verb, id, f"{verb} {number} {name}")
                if chance.random() < 0.8:
                    await self._stands_still(caller, id)
        if chance.random() < 0.9:
            await self._do(caller, "delete", id, f"delete {name}")

    async def _create(self, caller: Caller, name: str, wish: Json, *, at_once: int) -> str | None:
        """Ask once, or several times at the same moment with one key."""
        answers = await asyncio.gather(*(caller.ask(CREATE, {"input": wish}) for _ in range(at_once)))
        ids: set[str] = set()
        for answer in answers:
            if answer is None:
                continue
            payload: Json = answer.payload["createInstance"]
            if payload["instance"] is not None:
                ids.add(payload["instance"]["id"])
                self.accounts.operations.add(payload["operation"]["id"])
            else:
                self.accounts.codes.update(error["code"] for error in payload["errors"])
                if at_once == 1 and not answer.was_lost_before:
                    self.accounts.refused.add(name)
        if len(ids) > 1:
            self.accounts.two_for_one_key.append(f"{name}: {sorted(ids)}")
        if not ids:
            return None
        self.accounts.counts["creates accepted"] += 1
        self.accounts.accepted[name] = ids.pop()
        return self.accounts.accepted[name]

    async def _do(self, caller: Caller, verb: str, id: str, key: str) -> None:
        answer = await caller.ask(VERB % verb, {"id": id, "key": key})
        if answer is None:
            return
        payload: Json = answer.payload[f"{verb}Instance"]
        if payload["operation"] is not None and not payload["errors"]:
            self.accounts.operations.add(payload["operation"]["id"])
            self.accounts.counts[f"{verb}s accepted"] += 1
        else:
            self.accounts.codes.update(error["code"] for error in payload["errors"])

    async def _stands_still(self, caller: Caller, id: str) -> None:
        """Ask until nothing moves, or for so long that it does not matter."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not self.is_over.is_set():
            answer = await caller.ask(INSTANCE, {"id": id}, patience=10)
            instance: Json | None = None if answer is None else answer.payload["instance"]
            if instance and instance["status"] in STANDSTILL and instance["openOperation"] is None:
                return
            await asyncio.sleep(0.3 * self._pace)

    async def _ask_for_nonsense(self, caller: Caller, chance: random.Random, name: str) -> None:
        """What must be refused, and leave nothing behind."""
        wish: Json = {"name": name, "productName": PRODUCT, "image": "nginx", "idempotencyKey": f"key {name}"}
        wish |= chance.choice(
            [
                {"gpuCount": 99},
                {"productName": "No Such GPU"},
                {"ports": [{"port": 0}]},
                {"image": None},
                {"rootfsSizeGb": -5},
                {"webhookUrl": "ftp://example.com/hook"},
                {"maxHourlyPrice": {"amountMicros": 1}},
                {"regions": ["NOWHERE-01"]},
            ]
        )
        answer = await caller.ask(CREATE, {"input": wish})
        if answer is None:
            return
        payload: Json = answer.payload["createInstance"]
        if payload["instance"] is None:
            self.accounts.counts["nonsense refused"] += 1
            self.accounts.refused.add(name)
        else:
            self.accounts.counts["nonsense accepted"] += 1
