"""The invariants of a chaos run, checked from outside once everything is at rest."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from server.webhooks.deliveries import DELIVERED_EVENTS
from tests.chaos import charges, event_order, lifetimes, recoveries
from tests.chaos.cluster import LEASE, Cluster
from tests.chaos.faulty_receiver import FaultyReceiver
from tests.chaos.hostile_clients import HostileClient
from tests.chaos.injector import FaultInjector
from tests.chaos.load import Load, RetryingCaller
from tests.chaos.machine_watch import MachineWatch
from tests.chaos.managed_process import Life, ManagedProcess
from tests.chaos.own_faults import FAILURES, Failure, own_faults
from tests.chaos.secret_search import search_secrets
from tests.chaos.subscribers import Subscriber, SubscriberPool
from tests.support.waiting import until

MOST_MEMORY = 400 * 2**20  # bytes of one process, whatever it is flooded with
SETTLE_SECONDS = 300.0
STUCK_SECONDS = 45.0  # in which reconcile, which might help, has come four times
IS_STUCK = """
    SELECT NOT EXISTS (SELECT FROM outbox) AND NOT EXISTS (
        SELECT FROM job WHERE instance_id IN (
            SELECT instance_id FROM operation WHERE finished_at IS NULL
            UNION SELECT instance_id FROM delivery WHERE status = 'PENDING'))
"""
REDELIVER = "mutation ($id: ID!) { redeliverWebhook(input: {id: $id}) { errors { code } } }"

INVARIANTS = {
    1: "at most one machine per create or relocation",
    2: "every accepted operation ends",
    3: "each subscriber's record equals the log",
    4: "no write without the job, no job twice at once",
    5: "what is refused leaves nothing",
    6: "one key, one instance",
    7: "webhooks arrive, or are visibly dead",
    8: "no crash, and clear errors meanwhile",
    9: "no secret in logs or tables",
    10: "strangers see and change nothing",
    11: "memory stays bounded",
    12: "SIGTERM ends in time, with a farewell",
    13: "every machine with our marker is accounted for",
    14: "no operation fails for our own fault",
    15: "a disk grows once per request",
    16: "no lifetime ends early, and none is forgotten",
    17: "one machine serves, and two exist at most",
    18: "the ledger has what the provider charged",
    19: "the burn rate is what the provider charges",
}


@dataclass
class Verdict:
    """By invariant: how much was checked, and what was wrong."""

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

    stage: Cluster
    load: Load
    breaking: FaultInjector
    watching: SubscriberPool
    subscribers: list[Subscriber]
    receiver: FaultyReceiver
    stranger: HostileClient
    machines: MachineWatch


async def come_to_rest(run: Run, verdict: Verdict) -> None:
    """Nothing is broken any more: wait until nothing is left to do, or for as long as that may take."""
    deadline = time.monotonic() + SETTLE_SECONDS
    caller = RetryingCaller(run.stage.addresses, run.stage.secrets.token, run.load.accounts, random.Random(0))
    left: dict[str, int] = {}
    stuck_since: float | None = None
    try:
        while time.monotonic() < deadline:
            async with run.stage.connection() as connection:
                left = await _left(connection, run.breaking.lost)
                is_stuck = await connection.fetchval(IS_STUCK)
                late = await connection.fetch(
                    "SELECT id FROM delivery WHERE status = 'PENDING' AND next_attempt_at > now() + interval '8 s'"
                )
            if not any(left.values()):
                return
            if left["recoveries"]:
                is_stuck = False  # their pauses, and a machine that is missing, are waited for without a job
            stuck_since = (stuck_since or time.monotonic()) if is_stuck else None
            if stuck_since is not None and time.monotonic() - stuck_since > STUCK_SECONDS:
                break
            for row in late:
                await caller.ask(REDELIVER, {"id": f"dlv_{row['id'].hex}"})
            await asyncio.sleep(0.5)
    finally:
        await caller.close()
    verdict.notes.append(f"this is still open: {left}")


async def _left(connection: Any, lost: set[str]) -> dict[str, int]:
    return {
        "recoveries": await connection.fetchval(recoveries.LEFT, list(lost)),
        "operations": await connection.fetchval("SELECT count(*) FROM operation WHERE finished_at IS NULL"),
        "events": await connection.fetchval("SELECT count(*) FROM outbox"),
        "deliveries": await connection.fetchval("SELECT count(*) FROM delivery WHERE status = 'PENDING'"),
        "lifetimes": await connection.fetchval("SELECT count(*) FROM instance WHERE lifetime_due_at IS NOT NULL"),
    }


async def judge(run: Run, verdict: Verdict) -> None:
    watch = run.machines
    if not await watch.look_after_reconcile(within=120):
        verdict.broken.append("there was no reconcile after the end of all faults")
    verdict.check(13, watch.checked, list(watch.differences.violations.values()))
    verdict.check(15, watch.disks_checked, list(watch.disks.values()))
    verdict.check(17, watch.crowds_checked, list(watch.crowds))
    state = await run.stage.control("state")
    async with run.stage.connection() as connection:
        await _machines(run, verdict, connection, state)
        await _operations(run, verdict, connection)
        await _records(run, verdict, connection)
        await _claims(verdict, connection)
        await _refusals(run, verdict, connection, state)
        await _keys(run, verdict, connection)
        await _deliveries(run, verdict, connection)
        await _failures(run, verdict, connection)
        await _lifetimes(run, verdict, connection)
        await _recoveries(run, verdict, connection)
        await _charges(run, verdict, connection)
        verdict.check(9, *await search_secrets(run.stage, connection))
    processes = list(run.stage.processes.values())
    verdict.check(4, *overlaps(run.stage.runs, processes))
    accounts = run.load.accounts
    errors = accounts.unclear_errors
    verdict.check(
        8, sum(len(m.lives) + 1 for m in processes), [crash for m in processes for crash in m.crashes] + errors
    )
    verdict.check(10, run.stranger.counts.total(), run.stranger.saw)
    sizes = [f"{m.name} grew to {m.peak_bytes / 2**20:.0f} MB" for m in processes if m.peak_bytes > MOST_MEMORY]
    verdict.check(11, len(processes), sizes)
    ends = run.breaking.injected["SIGTERM api"] + run.breaking.injected["SIGTERM worker"]
    verdict.check(12, ends, [slow for m in processes for slow in m.slow_ends] + run.breaking.wrong_farewells)


async def _machines(run: Run, verdict: Verdict, connection: Any, state: dict[str, Any]) -> None:
    rows = await connection.fetch("SELECT operation_id, marker FROM attempt WHERE marker IS NOT NULL")
    owner = {row["marker"]: row["operation_id"] for row in rows}
    made: Counter[Any] = Counter()
    wrong: list[str] = []
    for name, many in state["madeByName"].items():
        operation_id = owner.get(name.rsplit("-", 1)[-1])
        if operation_id is None:
            wrong.append(f"machine {name} was made by no attempt")
        made[operation_id] += many
    wrong += [f"operation {id} has made {many} machines" for id, many in made.items() if id is not None and many > 1]
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


async def _failures(run: Run, verdict: Verdict, connection: Any) -> None:
    failures = [
        Failure(f"op_{row['id'].hex}", row["kind"], row["error_code"], row["error_message"], row["seconds"])
        for row in await connection.fetch(FAILURES, list(run.breaking.lost))
    ]
    ended = await connection.fetchval("SELECT count(*) FROM operation WHERE finished_at IS NOT NULL")
    max_wait = run.stage.provider_max_wait
    verdict.check(14, ended, own_faults(failures, cancelled=run.load.accounts.cancelled, provider_max_wait=max_wait))
    codes = Counter(f"{failure.kind} {failure.code}" for failure in failures)
    verdict.notes.append("failed: " + (", ".join(f"{name} {many}" for name, many in sorted(codes.items())) or "none"))


async def _lifetimes(run: Run, verdict: Verdict, connection: Any) -> None:
    available = run.breaking.available
    available.add_stalls(run.stage)
    checked, wrong, note = await lifetimes.check_lifetimes(connection, available, run.load.accounts.promises)
    verdict.check(16, checked, wrong)
    verdict.notes.append(note)


async def _recoveries(run: Run, verdict: Verdict, connection: Any) -> None:
    checked, wrong, note = await recoveries.check_at_rest(connection, (await run.stage.control("machines"))["machines"])
    verdict.check(17, checked, wrong)
    verdict.notes.append(f"{note}; {run.breaking.reclaimed} reclaimed, {len(run.breaking.lost)} lost")


async def _charges(run: Run, verdict: Verdict, connection: Any) -> None:
    bills = (await run.stage.control("bills"))["bills"]
    checked, wrong, note = await charges.check_ledger(connection, bills, run.breaking.lost)
    verdict.check(18, checked, wrong)
    verdict.notes.append(note)
    last = await charges.check_burn_rate(connection, run.stage)
    verdict.check(19, run.machines.burns_checked, [*run.machines.burns.violations.values(), *last])


async def _records(run: Run, verdict: Verdict, connection: Any) -> None:
    rows = await connection.fetch(
        "SELECT id FROM event WHERE project_id = $1 AND instance_id IS NOT NULL ORDER BY position",
        run.stage.project_id,
    )
    log = [f"evt_{row['id'].hex}" for row in rows]
    with suppress(AssertionError):
        await until(lambda: all(len(subscriber.seen) >= len(log) for subscriber in run.subscribers), within=90)
    await asyncio.sleep(0.5)  # for what would come twice
    wrong = list(run.watching.problems)
    for subscriber in run.subscribers:
        if subscriber.seen != log:
            seen, doubled = len(subscriber.seen), len(subscriber.seen) - len(set(subscriber.seen))
            wrong.append(f"subscriber {subscriber.number} has {seen} of {len(log)} events, {doubled} of them double")
    for table in ("instance", "operation"):
        told = await connection.fetch(event_order.VERSIONS.format(table=table))
        rows = await connection.fetch(event_order.ROWS.format(table=table))
        wrong += event_order.version_problems(table, map(tuple, told), dict(map(tuple, rows)))
    positions = await connection.fetchrow("SELECT count(*), max(position) - min(position) + 1 FROM event")
    if positions[0] != positions[1]:
        wrong.append(f"{positions[0]} events have {positions[1]} positions")
    verdict.check(3, len(log) * len(run.subscribers), wrong)


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


def overlaps(runs: Path, processes: list[ManagedProcess]) -> tuple[int, list[str]]:
    """Runs of one job by two processes at the same time.

    One that was frozen, or got no CPU time, does not count: it did nothing meanwhile, and could not know that its lease
    was over. Only shortly before the end of its run: afterwards it has as much time as any other to notice.
    """
    lives = defaultdict[int, list[Life]](list)  # a long run on a busy machine meets the same pid again
    for process in processes:
        for life in process.lives:
            lives[life.pid].append(life)
    idle = defaultdict[int, list[tuple[float, float]]](list)
    for process in processes:
        for pid, began, ended in process.frozen:
            idle[pid].append((began, ended))
    spans = defaultdict[str, list[tuple[float, float, int]]](list)
    begun: dict[tuple[str, str, str], float] = {}
    for line in runs.read_text().splitlines():
        pid, job, claim, kind, at, what = line.split(" ")
        if kind == "RECONCILED":
            continue
        if what == "begins":
            begun[pid, job, claim] = float(at)
        elif kind == "STALL":
            idle[int(pid)].append((begun.pop((pid, job, claim)), float(at)))
        else:
            spans[job].append((begun.pop((pid, job, claim)), float(at), int(pid)))
    for (pid, job, _), began in begun.items():
        ended = next((life.ended for life in lives[int(pid)] if life.began <= began <= life.ended), began)
        spans[job].append((began, ended, int(pid)))
    wrong: list[str] = []
    for job, runs_of_job in spans.items():
        for (began, ended, pid), (next_began, _, next_pid) in pairwise(sorted(runs_of_job)):
            was_idle = any(start < ended and stop > max(began, ended - LEASE) for start, stop in idle[pid])
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
    leaked = await connection.fetchval(
        "SELECT count(*) FROM event WHERE data->'instance'->>'name' = ANY($1::text[])", list(refused)
    )
    if leaked:
        wrong.append(f"{leaked} events mention what was refused")
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
    sent = [(f"msg_{row['id'].hex}", str(row["instance_id"])) for row in await connection.fetch(event_order.DELIVERIES)]
    wrong += event_order.order_problems(sent, run.receiver.arrivals)
    unsent = await connection.fetchval(
        """
        SELECT count(*) FROM event JOIN instance ON instance.id = event.instance_id
        WHERE instance.webhook_url IS NOT NULL AND event.type = ANY($1::text[])
          AND NOT EXISTS (SELECT FROM delivery WHERE delivery.event_id = event.id)
        """,
        [str(type) for type in DELIVERED_EVENTS],
    )
    if unsent:
        wrong.append(f"{unsent} events were never to be delivered")
    verdict.check(7, len(rows), wrong)
