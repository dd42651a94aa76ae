"""What must hold whatever happened, looked at from outside once everything has come to rest."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp

from server.webhooks.deliveries import WANTED
from tests.chaos.breaking import Breaking
from tests.chaos.load import Caller, Load
from tests.chaos.member import Member
from tests.chaos.receiver import Receiver
from tests.chaos.stage import Stage
from tests.chaos.strangers import Stranger
from tests.chaos.watching import Watcher, Watching
from tests.processes import eventually

MOST_MEMORY = 400 * 2**20  # bytes of one process, whatever it is flooded with
SETTLE_SECONDS = 300.0
REDELIVER = "mutation ($id: ID!) { redeliverWebhook(input: {id: $id}) { errors { code } } }"

INVARIANTS = {
    1: "at most one machine per accepted create",
    2: "every accepted operation ends",
    3: "each watcher's record equals the log",
    4: "no write without the job, no job twice at once",
    5: "what is refused leaves nothing",
    6: "one key, one instance",
    7: "webhooks arrive, or are visibly dead",
    8: "no crash, and clear errors meanwhile",
    9: "no secret in logs or tables",
    10: "strangers see and change nothing",
    11: "memory stays bounded",
    12: "SIGTERM ends in time, with a farewell",
}


@dataclass
class Verdict:
    """By invariant: how much was looked at, and what was wrong."""

    checked: Counter[int] = field(default_factory=Counter[int])
    violations: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])  # of ourselves: then nothing was proved

    def check(self, number: int, many: int, wrong: list[str]) -> None:
        self.checked[number] += many
        self.violations[number] += wrong

    @property
    def is_good(self) -> bool:
        return not any(self.violations.values()) and not self.broken


@dataclass
class Run:
    """Everything that took part and remembers something."""

    stage: Stage
    load: Load
    breaking: Breaking
    watching: Watching
    watchers: list[Watcher]
    receiver: Receiver
    stranger: Stranger


async def come_to_rest(run: Run, verdict: Verdict) -> None:
    """Nothing is broken any more: wait until nothing is left to do, or for as long as that may take."""
    deadline = time.monotonic() + SETTLE_SECONDS
    caller = Caller(run.stage.addresses, run.stage.secrets.token, run.load.accounts, random.Random(0))
    left: dict[str, int] = {}
    try:
        while time.monotonic() < deadline:
            async with run.stage.connection() as connection:
                left = await _left(connection)
                late = await connection.fetch(
                    "SELECT id FROM delivery WHERE status = 'PENDING' AND next_attempt_at > now() + interval '8 s'"
                )
            if not any(left.values()):
                return
            for row in late:
                await caller.ask(REDELIVER, {"id": f"dlv_{row['id'].hex}"})
            await asyncio.sleep(0.5)
    finally:
        await caller.close()
    verdict.notes.append(f"after {SETTLE_SECONDS:.0f} s this is still open: {left}")


async def _left(connection: Any) -> dict[str, int]:
    return {
        "operations": await connection.fetchval("SELECT count(*) FROM operation WHERE finished_at IS NULL"),
        "events": await connection.fetchval("SELECT count(*) FROM outbox"),
        "deliveries": await connection.fetchval("SELECT count(*) FROM delivery WHERE status = 'PENDING'"),
    }


async def judge(run: Run, verdict: Verdict) -> None:
    state = await run.stage.control("state")
    async with run.stage.connection() as connection:
        await _machines(run, verdict, connection, state)
        await _operations(run, verdict, connection)
        await _records(run, verdict, connection)
        await _claims(verdict, connection)
        await _refusals(run, verdict, connection, state)
        await _keys(run, verdict, connection)
        await _deliveries(run, verdict, connection)
        await _secrets(run, verdict, connection)
    members = list(run.stage.members.values())
    verdict.check(4, *overlaps(run.stage.runs, members))
    accounts = run.load.accounts
    errors = accounts.unclear_errors
    verdict.check(8, sum(len(m.lives) + 1 for m in members), [crash for m in members for crash in m.crashes] + errors)
    verdict.check(10, run.stranger.counts.total(), run.stranger.saw)
    sizes = [f"{m.name} grew to {m.peak_bytes / 2**20:.0f} MB" for m in members if m.peak_bytes > MOST_MEMORY]
    verdict.check(11, len(members), sizes)
    ends = run.breaking.injected["SIGTERM api"] + run.breaking.injected["SIGTERM worker"]
    verdict.check(12, ends, [slow for m in members for slow in m.slow_ends] + run.breaking.wrong_farewells)


async def _machines(run: Run, verdict: Verdict, connection: Any, state: dict[str, Any]) -> None:
    rows = await connection.fetch("SELECT instance_id, marker FROM attempt WHERE marker IS NOT NULL")
    owner = {row["marker"]: row["instance_id"] for row in rows}
    made: Counter[Any] = Counter()
    wrong: list[str] = []
    for name, many in state["madeByName"].items():
        instance_id = owner.get(name.rsplit("-", 1)[-1])
        if instance_id is None:
            wrong.append(f"machine {name} was made by no attempt")
        made[instance_id] += many
    wrong += [f"instance {id} has had {many} machines" for id, many in made.items() if id is not None and many > 1]
    known = {f"inst_{row['id'].hex}" for row in await connection.fetch("SELECT id FROM instance")}
    accepted = run.load.accounts.accepted
    wrong += [f"{name} was accepted as {id} and is gone" for name, id in accepted.items() if id not in known]
    verdict.check(1, len(accepted), wrong)


async def _operations(run: Run, verdict: Verdict, connection: Any) -> None:
    rows = await connection.fetch("SELECT id, kind, status, finished_at FROM operation")
    ends = {f"op_{row['id'].hex}": row for row in rows}
    wrong = [f"{id} was accepted and is gone" for id in run.load.accounts.operations if id not in ends]
    wrong += [
        f"{id} ({row['kind']}) is still {row['status']}" for id, row in ends.items() if row["finished_at"] is None
    ]
    verdict.check(2, len(ends), wrong)
    endings = Counter(f"{row['kind']} {row['status']}" for row in rows)
    verdict.notes.append("operations: " + ", ".join(f"{name} {many}" for name, many in sorted(endings.items())))


async def _records(run: Run, verdict: Verdict, connection: Any) -> None:
    rows = await connection.fetch(
        "SELECT id FROM event WHERE project_id = $1 AND instance_id IS NOT NULL ORDER BY position",
        run.stage.project_id,
    )
    log = [f"evt_{row['id'].hex}" for row in rows]
    with suppress(AssertionError):
        await eventually(lambda: all(len(watcher.seen) >= len(log) for watcher in run.watchers), within=90)
    await asyncio.sleep(0.5)  # for what would come twice
    wrong = list(run.watching.problems)
    for watcher in run.watchers:
        if watcher.seen != log:
            doubled = len(watcher.seen) - len(set(watcher.seen))
            wrong.append(
                f"watcher {watcher.number} has {len(watcher.seen)} of {len(log)} events, {doubled} of them double"
            )
    positions = await connection.fetchrow("SELECT count(*), max(position) - min(position) + 1 FROM event")
    if positions[0] != positions[1]:
        wrong.append(f"{positions[0]} events have {positions[1]} positions")
    verdict.check(3, len(log) * len(run.watchers), wrong)


async def _claims(verdict: Verdict, connection: Any) -> None:
    """A handler's transaction must have been committed while its claim was the job's."""
    await connection.execute("CREATE INDEX ON chaos_claim (job_id, before)")
    await connection.execute("CREATE INDEX ON chaos_claim (job_id, after)")
    rows = await connection.fetch(
        """
        SELECT job_id, claim FROM chaos_write AS done
        WHERE NOT EXISTS (
                SELECT FROM chaos_claim WHERE job_id = done.job_id AND after = done.claim
                  AND pg_xact_commit_timestamp(xid::text::xid) <= pg_xact_commit_timestamp(done.xid::text::xid))
           OR EXISTS (
                SELECT FROM chaos_claim WHERE job_id = done.job_id AND before = done.claim
                  AND pg_xact_commit_timestamp(xid::text::xid) < pg_xact_commit_timestamp(done.xid::text::xid))
        """
    )
    writes = await connection.fetchval("SELECT count(*) FROM chaos_write")
    late = [f"job {row['job_id']} was written under claim {row['claim']}, which was over" for row in rows]
    verdict.check(4, writes, late)
    stolen = await connection.fetch("SELECT job_id FROM chaos_claim WHERE before IS NOT NULL AND after IS NOT NULL")
    verdict.check(4, 0, [f"job {row['job_id']} was taken from who had it" for row in stolen])


def overlaps(runs: Path, members: list[Member]) -> tuple[int, list[str]]:
    """Runs of one job by two processes at the same time. One that was frozen does nothing, so it does not count."""
    ended_at = {life.pid: life.ended for member in members for life in member.lives}
    idle = defaultdict[int, list[tuple[float, float]]](list)
    for member in members:
        for pid, began, ended in member.frozen:
            idle[pid].append((began, ended))
    spans = defaultdict[str, list[tuple[float, float, int]]](list)
    begun: dict[tuple[str, str, str], float] = {}
    for line in runs.read_text().splitlines():
        pid, job, claim, kind, at, what = line.split(" ")
        if what == "begins":
            begun[pid, job, claim] = float(at)
        elif kind == "STALL":
            idle[int(pid)].append((begun.pop((pid, job, claim)), float(at)))
        else:
            spans[job].append((begun.pop((pid, job, claim)), float(at), int(pid)))
    for (pid, job, _), began in begun.items():
        spans[job].append((began, ended_at.get(int(pid), began), int(pid)))
    wrong: list[str] = []
    for job, runs_of_job in spans.items():
        for (began, ended, pid), (next_began, _, next_pid) in pairwise(sorted(runs_of_job)):
            was_idle = any(start < ended and stop > began for start, stop in idle[pid])
            if next_began < ended and not was_idle:
                wrong.append(f"job {job} ran in {pid} until {ended:.3f} and in {next_pid} from {next_began:.3f}")
    return sum(map(len, spans.values())), wrong


async def _refusals(run: Run, verdict: Verdict, connection: Any, state: dict[str, Any]) -> None:
    refused = run.load.accounts.refused
    names = {row["name"] for row in await connection.fetch("SELECT name FROM instance")}
    keys = {row["key"] for row in await connection.fetch("SELECT key FROM idempotency_key")}
    made = {name.rsplit("-", 1)[0] for name in state["madeByName"]}
    wrong = [f"{name} was refused and left a row" for name in refused & names]
    wrong += [f"{name} was refused and left a key" for name in refused if f"key {name}" in keys]
    wrong += [f"{name} was refused and left a machine" for name in refused & made]
    told = await connection.fetchval(
        "SELECT count(*) FROM event WHERE data->'instance'->>'name' = ANY($1::text[])", list(refused)
    )
    if told:
        wrong.append(f"{told} events tell of what was refused")
    if run.load.accounts.counts["nonsense accepted"]:
        wrong.append(f"{run.load.accounts.counts['nonsense accepted']} nonsensical wishes were accepted")
    verdict.check(5, len(refused), wrong)


async def _keys(run: Run, verdict: Verdict, connection: Any) -> None:
    rows = await connection.fetch("SELECT name, count(*) AS many FROM instance GROUP BY name HAVING count(*) > 1")
    wrong = list(run.load.accounts.two_for_one_key) + [f"{row['name']} is there {row['many']} times" for row in rows]
    keys = await connection.fetchval("SELECT count(*) FROM idempotency_key")
    verdict.check(6, keys, wrong)


async def _deliveries(run: Run, verdict: Verdict, connection: Any) -> None:
    rows = await connection.fetch(
        "SELECT id, status, error_code, attempts, "
        "(SELECT count(*) FROM delivery_attempt WHERE delivery_id = delivery.id) AS recorded FROM delivery"
    )
    wrong: list[str] = []
    for row in rows:
        id = f"msg_{row['id'].hex}"
        if row["status"] == "PENDING":
            wrong.append(f"{id} is still on its way")
        elif row["status"] == "DELIVERED" and not run.receiver.taken[id]:
            wrong.append(f"{id} is said to have arrived and never did")
        elif row["status"] == "FAILED" and (not row["error_code"] or row["recorded"] != row["attempts"]):
            wrong.append(f"{id} died without saying how")
    wrong += [f"{id} came with {len(bodies)} bodies" for id, bodies in run.receiver.bodies.items() if len(bodies) > 1]
    wrong += [f"{id} was not signed" for id in run.receiver.unsigned]
    unsent = await connection.fetchval(
        """
        SELECT count(*) FROM event JOIN instance ON instance.id = event.instance_id
        WHERE instance.webhook_url IS NOT NULL AND event.type = ANY($1::text[])
          AND NOT EXISTS (SELECT FROM delivery WHERE delivery.event_id = event.id)
        """,
        [str(type) for type in WANTED],
    )
    if unsent:
        wrong.append(f"{unsent} events were never to be delivered")
    verdict.check(7, len(rows), wrong)


async def _secrets(run: Run, verdict: Verdict, connection: Any) -> None:
    """Every secret that was planted or made, in every log and every table."""
    planted = run.stage.secrets
    needles = {
        "the provider's key": planted.novita_key,
        "the signing key": planted.signing_key,
        "a token": planted.token,
        "a stranger's token": planted.stranger,
        "the webhook secret": planted.webhook,
        "the registry password": planted.registry_password,
        **{f"an SSH password {n}": word for n, word in enumerate(await _ssh_passwords(run.stage))},
    }
    wrong: list[str] = []
    looked = 0
    for member in run.stage.members.values():
        wrong += _found(needles, member.log.read_text(errors="replace"), f"the log of {member.name}")
        looked += 1
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace"
    )
    for (table,) in tables:
        rows = await connection.fetch(f'SELECT to_jsonb(t)::text FROM "{table}" AS t')
        wrong += _found(needles, "\n".join(row[0] for row in rows), f"table {table}")
        looked += 1
    verdict.check(9, looked * len(needles), wrong)


def _found(needles: dict[str, str], text: str, where: str) -> list[str]:
    return [f"{what} is in {where}" for what, needle in needles.items() if needle and needle in text]


async def _ssh_passwords(stage: Stage) -> set[str]:
    """Of the machines that run now; each run of each has its own."""
    passwords: set[str] = set()
    async with (
        aiohttp.ClientSession() as http,
        http.get(
            f"{stage.simulator_url}/gpu-instance/openapi/v1/gpu/instances",
            params={"pageSize": "100", "pageNum": "1"},
            headers={"authorization": f"Bearer {stage.secrets.novita_key}"},
        ) as response,
    ):
        for item in (await response.json())["instances"]:
            ssh = item.get("connectComponentSSH") or {}
            if ssh.get("password"):
                passwords.add(ssh["password"])
    return passwords
