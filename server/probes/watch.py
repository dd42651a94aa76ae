"""The table of watched instances: which are in it, which are due, and what their probes found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.tables.probe import ProbeResult
from server.probes.plan import CheckPlan
from server.probes.results import save_results

# A worker that was killed leaves its instances claimed for this long. Longer than any probe.
CLAIM = timedelta(seconds=60)
SPREAD = 0.05  # of the interval, in both directions: instances that became READY together drift apart

# An instance that failed because its endpoints did not respond is watched too: they may respond later.
HEALTH_CHECK_FAILED = "HEALTH_CHECK_FAILED"
_IS_READY = "instance.status = 'READY'"
_IS_UNHEALTHY = f"instance.status = 'FAILED' AND instance.failure_code = '{HEALTH_CHECK_FAILED}'"

# As `needs_check` and `with_stored` say it in Python.
_INTERVAL = "coalesce((instance.health_check ->> 'interval')::float8, CAST(:interval AS float8))"
_IS_WATCHED = f"""
    instance.novita_id IS NOT NULL AND {_INTERVAL} > 0
    AND (instance.status = 'READY' OR instance.novita_status = 'running')
    AND (instance.health_check ? 'target_port' OR instance.ports @> '[{{"type": "http"}}]'
         OR instance.endpoints @> '[{{"type": "http"}}]')
"""
# The last condition: the interval became shorter, or the clock was set back.
REMOVE = text(f"""
    DELETE FROM health_watch USING instance
    WHERE instance.id = health_watch.instance_id
      AND (NOT ({_IS_WATCHED} AND ({_IS_READY} OR {_IS_UNHEALTHY})) OR instance.status_since <> health_watch.since
           OR health_watch.due_at > now() + make_interval(secs => {_INTERVAL} * {1 + SPREAD})
              + CAST(:claim AS interval))
""")
# Anywhere in the first interval, so that thousands of instances are not due together. One statement for each of the two
# partial indexes.
ADD = tuple(
    text(f"""
    INSERT INTO health_watch (instance_id, since, due_at)
    SELECT instance.id, instance.status_since, now() + make_interval(secs => {_INTERVAL} * random())
    FROM instance
    WHERE {condition} AND {_IS_WATCHED}
      AND NOT EXISTS (SELECT FROM health_watch WHERE health_watch.instance_id = instance.id)
    ON CONFLICT DO NOTHING
""")
    for condition in (_IS_READY, _IS_UNHEALTHY)
)
COUNT = text("SELECT count(*) FROM health_watch")

# now(), not clock_timestamp(): a volatile function can't limit the scan of the index.
CLAIM_DUE = """
    WITH due AS (
        SELECT instance_id, due_at FROM health_watch WHERE due_at <= now()
        ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE health_watch SET due_at = now() + $2 FROM due WHERE health_watch.instance_id = due.instance_id
        RETURNING health_watch.instance_id, since, failures, successes, now() - due.due_at AS late
    )
    SELECT claimed.*, health_check, ports, endpoints, degraded_since IS NOT NULL AS is_degraded,
           status = 'FAILED' AS has_failed
    FROM claimed JOIN instance ON instance.id = claimed.instance_id AND instance.status IN ('READY', 'FAILED')
                              AND instance.status_since = claimed.since
"""
RESET = text("UPDATE health_watch SET failures = 0 WHERE instance_id = :id")
NEXT_DUE = "SELECT min(due_at) - now() FROM health_watch"

# Instances whose status has changed, or is being changed right now, are left out: their results are of a run that may
# be over. The lock keeps their status until the results are committed.
SAVE = text("""
    WITH found AS (
        SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:since AS timestamptz[]), CAST(:failures AS bigint[]),
                             CAST(:successes AS bigint[]), CAST(:seconds AS float8[]))
                      AS found (id, since, failures, successes, seconds)
    ), current AS MATERIALIZED (
        SELECT instance.id FROM instance JOIN found ON instance.id = found.id
        WHERE instance.status IN ('READY', 'FAILED') AND instance.status_since = found.since
        ORDER BY instance.id FOR SHARE OF instance SKIP LOCKED
    )
    UPDATE health_watch
    SET failures = found.failures, successes = found.successes, due_at = now() + make_interval(secs => found.seconds)
    FROM found JOIN current ON current.id = found.id
    WHERE health_watch.instance_id = found.id AND health_watch.since = found.since
    RETURNING health_watch.instance_id
""")


@dataclass(frozen=True, slots=True)
class Watched:
    """An instance that is due, as it was when it was claimed; `late` is how long it has been due."""

    instance_id: UUID
    since: datetime
    failures: int
    successes: int
    late: timedelta
    health_check: dict[str, Any]
    ports: list[Any]
    endpoints: list[Any]
    is_degraded: bool
    has_failed: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """The results of an instance's probes, with the consecutive failures and successes including these."""

    watched: Watched
    results: Sequence[ProbeResult]
    failures: int
    successes: int
    next_after: timedelta


async def refresh_watched(session: AsyncSession, defaults: CheckPlan) -> int:
    """Add the instances that became READY or unhealthy, remove those that are no longer watched, and count them.

    A sweep, not a part of the transition: it also covers instances from before an upgrade, those that a process of an
    older release makes READY, and changed settings.
    """
    values = {"interval": defaults.interval.total_seconds()}
    await session.execute(REMOVE, {**values, "claim": CLAIM})
    for statement in ADD:
        await session.execute(statement, values)
    return (await session.execute(COUNT)).scalar_one()


async def claim_due(database: Database, *, limit: int) -> list[Watched]:
    """The instances that are due, longest first. No other job gets them for as long as `CLAIM`."""
    rows = await database.raw.fetch(CLAIM_DUE, limit, CLAIM)
    return [_watched(row) for row in rows]


async def time_to_next(database: Database) -> timedelta | None:
    """How long until the next instance is due; None if none is watched."""
    return await database.raw.fetchval(NEXT_DUE)


async def reset_failures(session: AsyncSession, instance_id: UUID) -> None:
    """After a successful check on request: the failures of before do not count any more."""
    await session.execute(RESET, {"id": instance_id})


async def save_findings(session: AsyncSession, findings: Sequence[Finding]) -> None:
    """Write what the probes of many instances found, and when each is due again."""
    saved = await session.execute(
        SAVE,
        {
            "ids": [each.watched.instance_id for each in findings],
            "since": [each.watched.since for each in findings],
            "failures": [each.failures for each in findings],
            "successes": [each.successes for each in findings],
            "seconds": [each.next_after.total_seconds() for each in findings],
        },
    )
    current = set(saved.scalars())
    await save_results(
        session, {each.watched.instance_id: each.results for each in findings if each.watched.instance_id in current}
    )


def _watched(row: asyncpg.Record) -> Watched:
    """From the columns of CLAIM_DUE, in order."""
    values = [*row[:5], *map(orjson.loads, row[5:8]), *row[8:]]
    return Watched(*values)
