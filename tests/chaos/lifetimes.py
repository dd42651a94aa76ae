"""Ends of lifetimes in a chaos run: none is early, and none is forgotten.

Triggers record every version of a limited instance and every operation by the database's clock, which no fault moves.
What was due is computed here again from the recorded limits.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.chaos.availability import Availability, Span
from tests.chaos.cluster import LEASE

SHARE = 1 / 3  # of the instances
RETRY = 5.0  # seconds; LIFETIME_RETRY
LATE = LEASE + 10  # seconds after what an end needs is there
WAITS_FOR_OPERATION = 120.0  # seconds, after which a delete supersedes another operation
DRIFT = 2.0  # seconds by which a process may be wrong about the database's clock
STOPPABLE = frozenset({"RUNNING", "HEALTH_CHECKING", "READY", "FAILED"})
LIMITS = frozenset({"MAX_DURATION", "DEADLINE", "HEARTBEAT"})
EVER = float("inf")

AUDIT = """
    CREATE TABLE chaos_lifetime (
        seq bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, xid bigint NOT NULL,
        instance_id uuid NOT NULL, status text NOT NULL, reason text, has_machine boolean NOT NULL,
        run_accepted_at timestamptz, heartbeat_at timestamptz, lifetime jsonb NOT NULL, state jsonb);
    CREATE FUNCTION chaos_note_lifetime() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO chaos_lifetime (
            at, xid, instance_id, status, reason, has_machine, run_accepted_at, heartbeat_at, lifetime, state)
        VALUES (clock_timestamp(), pg_current_xact_id()::text::bigint, NEW.id, NEW.status, NEW.status_reason,
            NEW.novita_id IS NOT NULL AND NEW.novita_status IS DISTINCT FROM 'removed', NEW.run_accepted_at,
            NEW.heartbeat_at, NEW.lifetime, NEW.lifetime_state);
        RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_limited AFTER INSERT OR UPDATE ON instance FOR EACH ROW WHEN (NEW.lifetime IS NOT NULL)
        EXECUTE FUNCTION chaos_note_lifetime();
    CREATE TABLE chaos_operation (
        at timestamptz NOT NULL, xid bigint NOT NULL, operation_id uuid NOT NULL, instance_id uuid NOT NULL,
        kind text NOT NULL, reason text, is_over boolean NOT NULL);
    CREATE FUNCTION chaos_note_operation() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO chaos_operation VALUES (clock_timestamp(), pg_current_xact_id()::text::bigint, NEW.id,
            NEW.instance_id, NEW.kind, NEW.reason, NEW.finished_at IS NOT NULL);
        RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_begun AFTER INSERT ON operation FOR EACH ROW EXECUTE FUNCTION chaos_note_operation();
    CREATE TRIGGER chaos_over AFTER UPDATE ON operation FOR EACH ROW
        WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION chaos_note_operation();
"""
VERSIONS = """
    SELECT instance_id::text AS id, extract(epoch FROM at)::float8 AS at, xid, status, reason, has_machine,
        lifetime ->> 'on_end' AS on_end,
        extract(epoch FROM run_accepted_at)::float8 AS run,
        CASE WHEN lifetime ? 'max_duration' AND run_accepted_at IS NOT NULL THEN extract(epoch FROM greatest(
            run_accepted_at + (lifetime ->> 'max_duration')::interval
                + make_interval(secs => coalesce((state ->> 'extra')::float8, 0)),
            (state ->> 'floor')::timestamptz))::float8 END AS run_end,
        extract(epoch FROM (lifetime ->> 'deadline')::timestamptz)::float8 AS deadline,
        extract(epoch FROM CASE WHEN run_accepted_at IS NOT NULL THEN greatest(run_accepted_at, heartbeat_at)
            + (lifetime ->> 'heartbeat')::interval END)::float8 AS heartbeat_end
    FROM chaos_lifetime ORDER BY instance_id, seq
"""
OPERATIONS = """
    SELECT instance_id::text AS id, min(extract(epoch FROM at))::float8 AS began, min(xid) AS xid, kind, reason,
        CASE WHEN bool_or(is_over) THEN max(extract(epoch FROM at))::float8 END AS ended
    FROM chaos_operation GROUP BY operation_id, instance_id, kind, reason ORDER BY 2
"""


def draw_limits(chance: random.Random) -> dict[str, Any]:
    """One limit that acts within the run; `tests.chaos.launch` allows such short ones."""
    limits: dict[str, Any] = {"onEnd": chance.choice(["STOP", "STOP", "DELETE"]), "warnBefore": chance.choice([0, 5])}
    match chance.choice(["maxDuration", "deadline", "heartbeat"]):
        case "deadline":
            limits["deadline"] = (datetime.now(UTC) + timedelta(seconds=chance.uniform(8, 20))).isoformat()
        case "maxDuration":
            limits["maxDuration"] = chance.randint(4, 14)
        case _:
            limits["heartbeat"] = chance.randint(5, 9)
    return limits


@dataclass(frozen=True, slots=True)
class Version:
    """A row as it was from `at` on; times are seconds since 1970."""

    at: float
    xid: int
    status: str
    on_end: str = "STOP"
    reason: str | None = None
    has_machine: bool = True
    run: float | None = None
    run_end: float | None = None
    deadline: float | None = None
    heartbeat_end: float | None = None

    @property
    def due(self) -> float | None:
        """When the instance is to end, by its limits alone."""
        if self.status in ("DELETING", "DELETED"):
            return None
        if self.status == "EXITED" or (self.status == "FAILED" and not self.has_machine):
            return self.deadline if self.on_end == "DELETE" else None
        return min((each for each in (self.run_end, self.deadline, self.heartbeat_end) if each), default=None)


@dataclass(frozen=True, slots=True)
class Op:
    """An operation while it was open; `ended` is None if it still is."""

    began: float
    ended: float | None
    xid: int
    kind: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    at: float
    xid: int


@dataclass(frozen=True, slots=True)
class Promise:
    """An extension or a heartbeat was accepted: no end between these times."""

    instance_id: str
    after: float
    until: float


def ends_of(versions: Sequence[Version], operations: Iterable[Op]) -> list[End]:
    """By operations; or by a create that was cancelled before a machine was made, which needs none."""
    ends = [End(each.began, each.xid) for each in operations if each.reason == "LIFETIME"]
    ends += [
        End(after.at, after.xid)
        for before, after in pairwise(versions)
        if after.status == "DELETED" and before.xid == after.xid and after.reason in LIMITS
    ]
    return sorted(ends, key=lambda end: end.at)


def early_ends(versions: Sequence[Version], ends: Iterable[End]) -> Iterator[str]:
    for end in ends:
        before = [each for each in versions if each.at < end.at and each.xid != end.xid]
        due = before[-1].due if before else None
        if due is None:
            yield "ended though no limit was set"
        elif end.at < due - 0.001:
            yield f"ended {due - end.at:.3f} s early"
    for before, after in pairwise(versions):
        if after.run is None or (after.run == before.run and after.status != "EXITED"):
            continue
        if after.status == "EXITED":
            yield "is stopped and keeps the run of before, which would end its next start"
        if not versions[0].at - DRIFT <= after.run <= after.at + DRIFT:
            yield f"counts from {after.run - after.at:+.1f} s after it was written"


def late_ends(
    versions: Sequence[Version], operations: Sequence[Op], available: Availability, *, until: float, offset: float
) -> Iterator[str]:
    """`offset` is what the monotonic clock shows at 1970; `until` is the end of the run."""
    for began, ended in _pending(versions, operations, until):
        healthy = available.longest(began + offset, ended + offset)
        if healthy > LATE:
            yield f"was due for {ended - began:.1f} s, {healthy:.1f} s of them with a worker and the database there"


def _pending(versions: Sequence[Version], operations: Sequence[Op], until: float) -> list[Span]:
    """When the instance was due and could have been ended."""
    tries = [each.began for each in operations if each.reason == "LIFETIME"]
    pieces: list[Span] = []
    for version, next_at in zip(versions, [*(each.at for each in versions[1:]), until], strict=True):
        if version.due is None:
            continue
        due = max([version.due, *(each + RETRY for each in tries if each <= version.at)])
        blocked = [_blocked(each, version, due) for each in operations]
        is_create = any(
            each.kind == "CREATE" and each.began <= version.at < (each.ended or EVER) for each in operations
        )
        if version.on_end == "DELETE" or version.status in STOPPABLE or is_create:
            pieces += _without((max(version.at, due), next_at), [each for each in blocked if each])
    merged: list[Span] = []
    for began, ended in pieces:
        if merged and began - merged[-1][1] < 0.001:
            merged[-1] = (merged[-1][0], ended)
        else:
            merged.append((began, ended))
    return merged


def _blocked(operation: Op, version: Version, due: float) -> Span | None:
    """While another operation is open, an end waits; a delete not for ever, and a create is cancelled."""
    if operation.kind == "CREATE":
        return None
    ended = operation.ended or EVER
    return operation.began, min(ended, due + WAITS_FOR_OPERATION) if version.on_end == "DELETE" else ended


def _without(span: Span, blocked: Iterable[Span]) -> list[Span]:
    began, ended = span
    pieces: list[Span] = []
    for start, stop in sorted(blocked):
        if stop > began and start < ended:
            pieces.append((began, min(start, ended)))
            began = stop
    pieces.append((began, ended))
    return [(start, stop) for start, stop in pieces if stop > start]


async def check_lifetimes(
    connection: Any, available: Availability, promises: Iterable[Promise]
) -> tuple[int, list[str], str]:
    """How many ends and promises were checked, what was wrong, and a note for the report."""
    versions, operations = defaultdict[str, list[Version]](list), defaultdict[str, list[Op]](list)
    for row in await connection.fetch(VERSIONS):
        values = dict(row)
        versions[values.pop("id")].append(Version(**values))
    for row in await connection.fetch(OPERATIONS):
        values = dict(row)
        operations[values.pop("id")].append(Op(**values))
    until = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
    offset = time.monotonic() - until
    wrong: list[str] = []
    ends: dict[str, list[End]] = {}
    for id, rows in versions.items():
        ends[id] = ends_of(rows, operations[id])
        found = [*early_ends(rows, ends[id]), *late_ends(rows, operations[id], available, until=until, offset=offset)]
        wrong += [f"instance {id} {words}" for words in found]
    checked = sum(map(len, ends.values()))
    note = f"lifetimes: {len(versions)} instances, {checked} ends"
    for promise in promises:
        checked += 1
        for end in ends.get(promise.instance_id, []):
            if promise.after < end.at < promise.until - 0.001:
                wrong.append(f"instance {promise.instance_id} ended {promise.until - end.at:.3f} s before it may")
    return checked, wrong, note
