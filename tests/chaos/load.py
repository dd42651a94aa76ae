"""Callers that create instances and repeat a request with the same key until there is a response."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import aiohttp

from tests.chaos import recoveries
from tests.chaos.lifetimes import SHARE, Promise, draw_limits

CREATE = """
    mutation ($input: CreateInstanceInput!) {
      createInstance(input: $input) { instance { id } operation { id } replayed errors { code } }
    }
"""
LIFECYCLE = """
    mutation ($id: ID!, $key: String!) {
      %sInstance(input: {id: $id, idempotencyKey: $key}) { operation { id } errors { code } }
    }
"""
UPDATE = """
    mutation ($id: ID!, $key: String!, $disk: Int!) {
      updateInstance(input: {id: $id, idempotencyKey: $key, rootfsSizeGb: $disk}) { operation { id } errors { code } }
    }
"""
CANCEL = "mutation ($id: ID!) { cancelOperation(input: {id: $id}) { cleanUp { id } errors { code } } }"
CANCEL_JOB = "mutation ($id: ID!) { cancelJob(input: {id: $id}) { errors { code } } }"
JOBS = "query ($id: ID!) { jobs(filter: {instanceId: $id, kind: CREATE_INSTANCE}) { nodes { id } } }"
EXTEND = """
    mutation ($id: ID!, $by: Duration!) {
      extendLifetime(input: {id: $id, by: $by}) { instance { lifetime { next { at } } } errors { code } }
    }
"""
HEARTBEAT = "mutation ($id: ID!) { heartbeat(input: {id: $id}) { nextAt errors { code } } }"
INSTANCE = "query ($id: ID!) { instance(id: $id) { status openOperation { id } } }"
PRODUCT = "RTX 4090 24GB"
REQUEST_SECONDS = 12.0
PATIENCE = 90.0  # seconds after which a caller gives up on an answer
DISK, GROWTH = 60, 10  # GB
STANDSTILL = ("READY", "EXITED", "FAILED", "DELETED")

Json = dict[str, Any]


@dataclass
class Accounts:
    """Everything that was promised to callers in responses."""

    accepted: dict[str, str] = field(default_factory=dict[str, str])  # name -> id of the instance
    hooked: set[str] = field(default_factory=set[str])  # ids of instances with a webhook
    operations: set[str] = field(default_factory=set[str])
    cancelled: set[str] = field(default_factory=set[str])  # operations that we asked to cancel, also by their jobs
    refused: set[str] = field(default_factory=set[str])  # names that were refused with no doubt
    codes: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    two_for_one_key: list[str] = field(default_factory=list[str])
    unclear_errors: list[str] = field(default_factory=list[str])
    promises: list[Promise] = field(default_factory=list[Promise])


@dataclass(frozen=True, slots=True)
class Answer:
    payload: Json
    was_lost_before: bool  # whether an earlier try may have been done without our learning of it
    sent_at: float  # when the answered try was sent, in seconds since 1970


class RetryingCaller:
    def __init__(self, urls: list[str], token: str, accounts: Accounts, chance: random.Random) -> None:
        self._urls, self._token, self._accounts, self._chance = urls, token, accounts, chance
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS))

    async def close(self) -> None:
        await self._http.close()

    async def ask(self, document: str, variables: Json, *, patience: float = PATIENCE) -> Answer | None:
        """Send to one process, then to the other; None if there was no response in all that time."""
        deadline = time.monotonic() + patience
        was_lost, number = False, self._chance.randrange(2)
        while time.monotonic() < deadline:
            url = self._urls[number % len(self._urls)]
            number += 1
            sent_at = time.time()
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
                    return Answer(body["data"], was_lost, sent_at)
                was_lost = True
                self._judge(errors)
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))
        self._accounts.counts["requests given up"] += 1
        return None

    def _judge(self, errors: list[Json]) -> None:
        """A valid request may get a retryable error, never an internal one."""
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
    """Callers that each create one instance after the other, until `is_over` is set."""

    def __init__(self, urls: list[str], token: str, *, seed: int, receiver_url: str, pace: float) -> None:
        self.accounts = Accounts()
        self.is_over = asyncio.Event()
        self._urls, self._token, self._seed, self._receiver_url, self._pace = urls, token, seed, receiver_url, pace

    async def run(self, number: int) -> None:
        chance = random.Random(f"{self._seed}:caller {number}")
        caller = RetryingCaller(self._urls, self._token, self.accounts, chance)
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

    async def _live_one_life(self, caller: RetryingCaller, chance: random.Random, name: str) -> None:
        is_first = name.endswith("-1")  # it stays as it is, to be reclaimed
        is_limited = not is_first and chance.random() < SHARE
        is_recovered = is_first or (not is_limited and chance.random() < recoveries.SHARE)
        if is_recovered:
            name = f"{recoveries.PREFIX}{name}"
        wish: Json = {
            "name": name,
            "productName": PRODUCT,
            "image": "nginx",
            "ports": [{"port": 80}],
            "rootfsSizeGb": DISK,
            "idempotencyKey": f"key {name}",
            "billing": chance.choice(["SPOT_THEN_ON_DEMAND", "ON_DEMAND"]),
        }
        if has_webhook := chance.random() < 0.4:
            wish["webhookUrl"] = self._receiver_url
        if is_limited:
            wish["lifetime"] = draw_limits(chance)
        if is_recovered:
            wish |= {"billing": "SPOT", "recovery": recoveries.draw_recovery(chance)}
        # Of several at once, the slower ones may find that their deadline has come too near.
        has_deadline = is_limited and "deadline" in wish["lifetime"]
        made = await self._create(caller, name, wish, at_once=3 if chance.random() < 0.3 and not has_deadline else 1)
        if made is None:
            return
        id, operation = made
        if has_webhook:
            self.accounts.hooked.add(id)
        course = chance.random()
        if is_first:
            await self._stands_still(caller, id)
            return
        if course < 0.3:  # while it is being made
            await asyncio.sleep(chance.uniform(0, 0.5))
            if course < 0.1:
                await self._cancel(caller, operation)
                return  # without a delete: nothing else would remove what the create has made
            if course < 0.15:
                await self._cancel_job(caller, id, operation)
                return
        else:
            await self._stands_still(caller, id)
            for number in range(chance.randrange(3)):
                action = chance.choice(["stop", "start", "restart", "update"])
                more: Json = {"disk": DISK + GROWTH * (number + 1)} if action == "update" else {}
                await self._do(caller, action, id, f"{action} {number} {name}", **more)
                if chance.random() < 0.8:
                    await self._stands_still(caller, id)
        if is_limited:
            await self._prolong(caller, chance, id, wish["lifetime"])
        if chance.random() < (0.3 if is_limited or is_recovered else 0.9):
            await self._do(caller, "delete", id, f"delete {name}")

    async def _create(self, caller: RetryingCaller, name: str, wish: Json, *, at_once: int) -> tuple[str, str] | None:
        """Ask once, or several times at the same moment with one key; the ids of the instance and its operation."""
        answers = await asyncio.gather(*(caller.ask(CREATE, {"input": wish}) for _ in range(at_once)))
        ids: set[tuple[str, str]] = set()
        refusals: list[str] = []
        for answer in answers:
            if answer is None:
                continue
            payload: Json = answer.payload["createInstance"]
            if payload["instance"] is not None:
                ids.add((payload["instance"]["id"], payload["operation"]["id"]))
                self.accounts.operations.add(payload["operation"]["id"])
            else:
                refusals += [error["code"] for error in payload["errors"]]
                self.accounts.codes.update(error["code"] for error in payload["errors"])
                if at_once == 1 and not answer.was_lost_before:
                    self.accounts.refused.add(name)
        if len(ids) > 1:
            self.accounts.two_for_one_key.append(f"{name}: {sorted(ids)}")
        if ids and refusals:
            self.accounts.two_for_one_key.append(f"{name}: accepted, and with the same key refused: {refusals}")
        if not ids:
            return None
        self.accounts.counts["creates accepted"] += 1
        made = ids.pop()
        self.accounts.accepted[name] = made[0]
        return made

    async def _prolong(self, caller: RetryingCaller, chance: random.Random, id: str, limits: Json) -> None:
        """Show some signs of life, as a program that may crash; then the instance is left to its limits."""
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(chance.uniform(0.5, 3.0))
            if "heartbeat" in limits:
                await self._beat(caller, id, limits["heartbeat"])
            elif chance.random() < 0.5:
                await self._extend(caller, id, chance.randint(2, 8))

    async def _beat(self, caller: RetryingCaller, id: str, interval: float) -> None:
        answer = await caller.ask(HEARTBEAT, {"id": id}, patience=10)
        next_at: str | None = None if answer is None else answer.payload["heartbeat"]["nextAt"]
        if next_at is not None:
            until = datetime.fromisoformat(next_at).timestamp()
            self.accounts.promises.append(Promise(str(UUID(id.removeprefix("inst_"))), until - interval, until))
            self.accounts.counts["heartbeats accepted"] += 1

    async def _extend(self, caller: RetryingCaller, id: str, seconds: int) -> None:
        answer = await caller.ask(EXTEND, {"id": id, "by": seconds}, patience=10)
        if answer is None:
            return
        payload: Json = answer.payload["extendLifetime"]
        self.accounts.codes.update(error["code"] for error in payload["errors"])
        step: Json | None = None if payload["errors"] else payload["instance"]["lifetime"]["next"]
        if step is not None:
            until = datetime.fromisoformat(step["at"]).timestamp()
            self.accounts.promises.append(Promise(str(UUID(id.removeprefix("inst_"))), answer.sent_at, until))
            self.accounts.counts["extensions accepted"] += 1

    async def _cancel(self, caller: RetryingCaller, operation: str) -> None:
        self.accounts.cancelled.add(operation)
        answer = await caller.ask(CANCEL, {"id": operation})
        if answer is None:
            return
        payload: Json = answer.payload["cancelOperation"]
        self.accounts.codes.update(error["code"] for error in payload["errors"])
        self.accounts.counts["creates cancelled"] += not payload["errors"]
        if payload["cleanUp"] is not None:
            self.accounts.operations.add(payload["cleanUp"]["id"])

    async def _cancel_job(self, caller: RetryingCaller, id: str, operation: str) -> None:
        answer = await caller.ask(JOBS, {"id": id})
        jobs: list[Json] = [] if answer is None else answer.payload["jobs"]["nodes"]
        for job in jobs:
            self.accounts.cancelled.add(operation)
            cancelled = await caller.ask(CANCEL_JOB, {"id": job["id"]})
            if cancelled is not None:
                errors: list[Json] = cancelled.payload["cancelJob"]["errors"]
                self.accounts.codes.update(error["code"] for error in errors)
                self.accounts.counts["jobs of creates cancelled"] += not errors

    async def _do(self, caller: RetryingCaller, action: str, id: str, key: str, **more: Any) -> None:
        document = UPDATE if action == "update" else LIFECYCLE % action
        answer = await caller.ask(document, {"id": id, "key": key, **more})
        if answer is None:
            return
        payload: Json = answer.payload[f"{action}Instance"]
        if payload["operation"] is not None and not payload["errors"]:
            self.accounts.operations.add(payload["operation"]["id"])
            self.accounts.counts[f"{action}s accepted"] += 1
        else:
            self.accounts.codes.update(error["code"] for error in payload["errors"])

    async def _stands_still(self, caller: RetryingCaller, id: str) -> None:
        """Ask until nothing moves, or for so long that it does not matter."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not self.is_over.is_set():
            answer = await caller.ask(INSTANCE, {"id": id}, patience=10)
            instance: Json | None = None if answer is None else answer.payload["instance"]
            if instance and instance["status"] in STANDSTILL and instance["openOperation"] is None:
                return
            await asyncio.sleep(0.3 * self._pace)

    async def _ask_for_nonsense(self, caller: RetryingCaller, chance: random.Random, name: str) -> None:
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
                {"maxHourlyPrice": {"amountMicros": 1000}},
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
