"""Compares, during a whole chaos run, the machines at the provider with our rows and with what `fleet` shows, and what
each is charged with what the burn rate counts.

A difference counts once a reconcile has begun after it was first seen, has compared everything, and the difference is
still there. The simulator and the database are asked directly, past all bad networks; `fleet` is asked through the API.
"""

import asyncio
import contextlib
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import asyncpg

from tests.chaos import charges, recoveries
from tests.chaos.cluster import Cluster
from tests.chaos.load import Accounts, RetryingCaller
from tests.support.accounting import judge, read_facts

SAMPLE_EVERY = 1.5  # seconds
FLEET = """
    query ($all: Boolean!, $after: String) {
      fleet(includeNovitaOnly: $all) {
        problem { code }
        items(first: 100, after: $after) { nodes { novitaId } pageInfo { hasNextPage endCursor } }
      }
    }
"""
# The size that was requested, at the create or by the largest update.
DISKS = """
    SELECT novita_id, greatest(rootfs_size_gb, (
        SELECT max((wanted ->> 'rootfs_size_gb')::int) FROM operation WHERE operation.instance_id = instance.id
    )) AS requested
    FROM instance WHERE novita_id IS NOT NULL
"""
RECONCILE_NOW = "UPDATE job_schedule SET next_at = now() WHERE kind = 'RECONCILE'"
AWAY = (
    aiohttp.ClientError,
    TimeoutError,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# What changes from sample to sample in the sentence about one machine.
STATE_IN_BRACKETS = re.compile(r" \([^)]*\)")


@dataclass(frozen=True, slots=True)
class Sample:
    """The differences at one moment, between `began` and `ended` of the machine's monotonic clock."""

    began: float
    ended: float
    machines: int
    wrong: list[str]


@dataclass
class Differences:
    """Which differences outlived a reconcile."""

    since: dict[str, float] = field(default_factory=dict[str, float])
    violations: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, sample: Sample, reconciles: list[tuple[float, float]]) -> None:
        """`reconciles` are the times at which complete ones began and ended."""
        present = {STATE_IN_BRACKETS.sub("", words): words for words in sample.wrong}
        self.since = {key: self.since.get(key, sample.ended) for key in present}
        for key, words in present.items():
            if any(began > self.since[key] and ended < sample.began for began, ended in reconciles):
                self.violations.setdefault(key, words)


class MachineWatch:
    def __init__(self, stage: Cluster) -> None:
        self._stage = stage
        self._accounts = Accounts()  # what a reader of `fleet` is answered is no promise to a caller of the load
        self.differences = Differences()
        self.burns = Differences()
        self.checked = self.burns_checked = 0
        self.disks_checked = 0
        self.disks: dict[str, str] = {}
        self.crowds_checked = 0
        self.crowds: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(SAMPLE_EVERY)

    async def look(self) -> bool:
        """One sample; False if one of the sides could not be read."""
        reconciles = self._reconciles()
        with contextlib.suppress(*AWAY):
            sample = await self._sample(reconciles)
            if sample is not None:
                self.checked += sample.machines
                self.differences.add(sample, reconciles)
                return True
        return False

    async def look_after_reconcile(self, *, within: float) -> bool:
        """Wait for a reconcile that begins now, and sample before and after it. False if there was none in time."""
        deadline = time.monotonic() + within
        while not await self.look():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.3)
        began = time.monotonic()
        async with self._stage.connection() as connection:
            await connection.execute(RECONCILE_NOW)
        while time.monotonic() < deadline:
            await asyncio.sleep(0.3)
            if any(start > began for start, _ in self._reconciles()) and await self.look():
                return True
        return False

    def _reconciles(self) -> list[tuple[float, float]]:
        begun: dict[str, float] = {}
        found: list[tuple[float, float]] = []
        with contextlib.suppress(FileNotFoundError):
            for line in self._stage.runs.read_text().splitlines():
                pid, _, _, kind, at, what = line.split(" ")
                if kind != "RECONCILED":
                    continue
                if what == "begins":
                    begun[pid] = float(at)
                else:
                    found.append((begun.pop(pid), float(at)))
        return found

    async def _sample(self, reconciles: list[tuple[float, float]]) -> Sample | None:
        """The burn rate is compared at once: without the samples during which `fleet` can't show the provider, two
        short differences of one machine would look like one that lasted."""
        began = time.monotonic()
        async with self._stage.connection() as connection:
            replaced = {row["novita_id"] for row in await connection.fetch(recoveries.REPLACED)}
        there = (await self._stage.control("machines"))["machines"]
        charged = {each["id"]: each["pricePerHour"] for each in there if each["pricePerHour"]}
        machines = [each for each in there if each["listed"]]
        async with self._stage.connection() as connection:
            owners = {row["marker"]: row["id"] for row in await connection.fetch(recoveries.OWNERS)}
            counted = {row["machine"]: row["price"] for row in await connection.fetch(charges.OPEN)}
            known = {row[0] for row in await connection.fetch(charges.KNOWN)}
            removed = {row[0] for row in await connection.fetch(charges.BEING_REMOVED)}
            facts = await read_facts(connection.fetch)
            disks = {row["novita_id"]: row["requested"] for row in await connection.fetch(DISKS)}
        # Until the removal is known to be accepted, a machine that is being removed counts.
        charged = {machine: price for machine, price in charged.items() if machine in known - removed}
        # One that is not there any more and was not removed was lost: until that is confirmed, it counts.
        ids = {each["id"] for each in there}
        counted = {machine: price for machine, price in counted.items() if machine in ids - removed}
        burns = charges.burn_problems(charged, counted)
        self.burns.add(Sample(began, time.monotonic(), len(machines), burns), reconciles)
        self.burns_checked += len(machines)
        checked, wrong = recoveries.crowds(there, owners, replaced)
        self.crowds_checked += checked
        self.crowds |= set(wrong)
        visible = await self._visible()
        if visible is None:
            return None
        self._check_disks(machines, disks)
        wrong = judge(((each["id"], each["name"], each["status"]) for each in machines), facts, visible)
        return Sample(began, time.monotonic(), len(machines), wrong)

    def _check_disks(self, machines: list[dict[str, Any]], requested: dict[str, int]) -> None:
        for machine in machines:
            size = requested.get(machine["id"])
            if size is not None:
                self.disks_checked += 1
                if machine["rootfsSize"] > size:
                    words = f"the disk of machine {machine['id']} has {machine['rootfsSize']} GB, not {size} GB"
                    self.disks[machine["id"]] = words

    async def _visible(self) -> set[str] | None:
        """The ids that `fleet` shows; None if it shows only one side, because the provider is away."""
        secrets = self._stage.secrets
        shown: set[str] = set()
        for token, includes_all in ((secrets.token, False), (secrets.server_admin, True)):
            ids = await self._fleet(token, includes_all)
            if ids is None:
                return None
            shown |= ids
        return shown

    async def _fleet(self, token: str, includes_all: bool) -> set[str] | None:
        caller = RetryingCaller(self._stage.addresses, token, self._accounts, random.Random(0))
        ids: set[str] = set()
        after: str | None = None
        try:
            while True:
                answer = await caller.ask(FLEET, {"all": includes_all, "after": after}, patience=5)
                if answer is None or answer.payload["fleet"]["problem"] is not None:
                    return None
                items = answer.payload["fleet"]["items"]
                ids |= {node["novitaId"] for node in items["nodes"] if node["novitaId"]}
                if not items["pageInfo"]["hasNextPage"]:
                    return ids
                after = items["pageInfo"]["endCursor"]
        finally:
            await caller.close()
