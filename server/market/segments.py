"""Chooses what to poll next: watched segments often, others rarely, all within one limit of calls."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.queue.control import make_keys_due_now

SPOT, ON_DEMAND = "spot", "onDemand"
POLL_KEY = "recurring POLL_MARKET"  # of the one job that polls the market
MINUTE = 60.0
WATCH_TTL = timedelta(seconds=60)
# Segments of other GPU counts than 1 are polled as long as a catalogue read has used them in this time.
USE_TTL = timedelta(days=1)
# A cold segment is polled this part of MARKET_COLD after the last time, so that its offers never get older than that.
COLD_LEAD = 0.9
PAUSE_MIN = 0.02


@dataclass(frozen=True, slots=True)
class Segment:
    """What one provider call lists. `gpu_count` 0: CPU products, which have one billing mode."""

    region: str
    mode: str
    gpu_count: int
    cluster_id: str


@dataclass(frozen=True, slots=True)
class DuePoll:
    """What to poll how often, how many seconds ago it was polled, and whether something watches it.

    `segment` None: the list of regions. `ago` is infinite if it never was, or if it was in what is the future since the
    database's clock was set back.
    """

    segment: Segment | None
    ago: float
    every: float
    is_hot: bool

    @property
    def seconds(self) -> float:
        """Until it is due."""
        return max(0.0, self.every - self.ago)


@dataclass(frozen=True, slots=True)
class Poll:
    """A segment to poll now, counted as a call at `at` by the database's clock; None: the list of regions. After it,
    nothing is to be polled for that many seconds."""

    segment: Segment | None
    at: datetime
    then_seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is to be polled for that many seconds."""

    seconds: float


# Rows are locked in the order of the key by every statement that locks several: two of them can't deadlock.
ADD_SEGMENTS = text("""
    INSERT INTO market_segment (region, mode, gpu_count)
    SELECT region, mode, gpu_count
    FROM market_region, unnest(ARRAY['onDemand', 'spot']) AS mode, unnest(CAST(:counts AS smallint[])) AS gpu_count
    WHERE gpu_count > 0 OR mode = 'onDemand'
    ORDER BY region, mode, gpu_count
    ON CONFLICT (region, mode, gpu_count) DO NOTHING
""")
MARK_USED = text("""
    WITH used AS (
        SELECT region, mode, gpu_count FROM market_segment
        WHERE gpu_count = :gpu_count AND (used_at IS NULL OR used_at < clock_timestamp() - CAST(:ttl AS interval) / 24)
        ORDER BY region, mode, gpu_count FOR UPDATE
    )
    UPDATE market_segment SET used_at = clock_timestamp()
    FROM used WHERE (market_segment.region, market_segment.mode, market_segment.gpu_count)
                    = (used.region, used.mode, used.gpu_count)
""")
WATCH = text("""
    WITH watched AS (
        SELECT region, mode, gpu_count FROM market_segment
        WHERE (CAST(:regions AS text[]) IS NULL OR region = ANY(CAST(:regions AS text[])))
          AND (CAST(:modes AS text[]) IS NULL OR mode = ANY(CAST(:modes AS text[])))
          AND gpu_count = :gpu_count
          AND (watched_until IS NULL OR watched_until < clock_timestamp() + CAST(:ttl AS interval) / 2)
        ORDER BY region, mode, gpu_count FOR UPDATE
    )
    UPDATE market_segment SET watched_until = clock_timestamp() + CAST(:ttl AS interval)
    FROM watched WHERE (market_segment.region, market_segment.mode, market_segment.gpu_count)
                       = (watched.region, watched.mode, watched.gpu_count)
    RETURNING market_segment.region
""")
# What makes segments hot as long as it exists: its GPU count, and its regions and billing modes, null: all.
WATCHERS = """
    SELECT DISTINCT gpu_count, regions, modes FROM market_alert
    WHERE expires_at IS NULL OR expires_at > clock_timestamp()
"""
READ_SEGMENTS = text(f"""
    WITH watcher AS MATERIALIZED ({WATCHERS})
    SELECT region, mode, gpu_count, cluster_id,
           coalesce(watched_until > clock_timestamp(), false) OR EXISTS (
               SELECT FROM watcher
               WHERE watcher.gpu_count = market_segment.gpu_count AND (regions IS NULL OR regions ? region)
                 AND (modes IS NULL OR modes ? mode)) OR EXISTS (
               SELECT FROM capacity_wait AS waiting
               WHERE waiting.gpu_count = market_segment.gpu_count AND market_segment.region = ANY(waiting.regions)
                 AND market_segment.mode = ANY(waiting.modes)) AS is_hot,
           gpu_count = 1 OR coalesce(used_at > clock_timestamp() - CAST(:use_ttl AS interval), false) AS is_used,
           extract(epoch FROM clock_timestamp() - market_segment.polled_at)::float8 AS seconds_ago
    FROM market_segment JOIN market_region USING (region)
""")
READ_COUNTS = text(f"SELECT gpu_count FROM market_segment UNION SELECT gpu_count FROM ({WATCHERS}) AS watcher")
READ_AGE_OF_REGIONS = text("SELECT extract(epoch FROM clock_timestamp() - min(polled_at))::float8 FROM market_region")
READ_CALLS = text("""
    SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM market_call
    WHERE at > clock_timestamp() - interval '1 minute' AND at <= clock_timestamp() ORDER BY at
""")
FORGET_CALLS = text("""
    DELETE FROM market_call WHERE at <= clock_timestamp() - interval '1 minute' OR at > clock_timestamp()
""")
ADD_CALL = text("INSERT INTO market_call (at) VALUES (clock_timestamp()) RETURNING at")
MARK_REGIONS_POLLED = text("UPDATE market_region SET polled_at = :at")
MARK_POLLED = text("""
    UPDATE market_segment SET polled_at = :at WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count
""")


async def add_segments(session: AsyncSession, counts: Sequence[int]) -> None:
    """Every known region has a segment for each billing mode and each of these numbers of GPUs."""
    await session.execute(ADD_SEGMENTS, {"counts": list(counts)})


async def read_counts(session: AsyncSession) -> set[int]:
    """The numbers of GPUs in use: 1, and those of segments and watchers."""
    return {1, *(await session.execute(READ_COUNTS)).scalars()}


async def next_poll(session: AsyncSession, *, hot: timedelta, cold: timedelta, calls_max: int) -> Poll | Pause:
    """What to poll now, counted as a call before it is made."""
    due, calls = await _read_due(session, hot=hot, cold=cold), await _read_calls(session)
    chosen = choose(due, calls, calls_max=calls_max, hot=hot)
    if isinstance(chosen, Pause):
        return chosen
    # Without another run of the job, which would only find out that there is nothing to do yet.
    rest = [each for each in due if each is not chosen] + [replace(chosen, ago=0.0)]
    then = choose(rest, [*calls, 0.0], calls_max=calls_max, hot=hot)
    await session.execute(FORGET_CALLS)
    at: datetime = (await session.execute(ADD_CALL)).scalar_one()
    segment = chosen.segment
    if segment is None:
        await session.execute(MARK_REGIONS_POLLED, {"at": at})
    else:
        values = {"region": segment.region, "mode": segment.mode, "gpu_count": segment.gpu_count, "at": at}
        await session.execute(MARK_POLLED, values)
    return Poll(segment, at, then.seconds if isinstance(then, Pause) else 0.0)


async def _read_due(session: AsyncSession, *, hot: timedelta, cold: timedelta) -> list[DuePoll]:
    """The list of regions, and all segments that are polled at all."""
    seldom = cold.total_seconds() * COLD_LEAD
    due = [DuePoll(None, _ago(await session.scalar(READ_AGE_OF_REGIONS)), seldom, is_hot=False)]
    for row in await session.execute(READ_SEGMENTS, {"use_ttl": USE_TTL}):
        if not row.is_hot and not row.is_used:
            continue
        segment = Segment(row.region, row.mode, row.gpu_count, row.cluster_id)
        due.append(DuePoll(segment, _ago(row.seconds_ago), hot.total_seconds() if row.is_hot else seldom, row.is_hot))
    return due


def _ago(seconds: float | None) -> float:
    return math.inf if seconds is None or seconds < 0 else seconds


async def _read_calls(session: AsyncSession) -> list[float]:
    """How many seconds ago each call of the last minute was made, the oldest first."""
    return list((await session.execute(READ_CALLS)).scalars())


def choose(due: Sequence[DuePoll], calls: Sequence[float], *, calls_max: int, hot: timedelta) -> DuePoll | Pause:
    """What to poll now, or the pause until something may be polled.

    Cold segments use only the calls that hot ones leave, at least a quarter: so a hot one is not late because of them.
    If there are too few calls for all, what is late by most of its intervals is next: each is polled less often, and
    none is left out. A pause is no longer than `hot`: a watch that begins at this moment is noticed by then.
    """
    hot_count = sum(each.is_hot for each in due)
    needed = min(calls_max * 3 // 4, round(hot_count * MINUTE / hot.total_seconds()))
    cold_calls = sorted((each.ago for each in due if not each.is_hot and each.ago < MINUTE), reverse=True)
    free = _free_in(calls, calls_max)
    free_for_cold = max(free, _free_in(cold_calls, max(1, calls_max - needed)))
    waits = [
        (max(each.seconds, free if each.is_hot else free_for_cold), -each.ago / each.every, not each.is_hot)
        for each in due
    ]
    if not waits:
        return Pause(hot.total_seconds())
    (wait, *_), index = min((wait, index) for index, wait in enumerate(waits))
    if wait <= 0:
        return due[index]
    return Pause(min(max(wait, PAUSE_MIN), hot.total_seconds()))


def _free_in(calls: Sequence[float], limit: int) -> float:
    """Seconds until fewer than `limit` calls are younger than a minute."""
    surplus = len(calls) - limit
    return 0.0 if surplus < 0 else MINUTE - calls[surplus]


async def watch(
    session: AsyncSession, *, regions: Sequence[str] | None, modes: Sequence[str] | None, gpu_count: int
) -> None:
    """A subscriber follows these segments: poll them often for the next minute. Writes only every half of that time."""
    await add_segments(session, [gpu_count])
    values = {
        "regions": None if regions is None else list(regions),
        "modes": None if modes is None else list(modes),
        "gpu_count": gpu_count,
        "ttl": WATCH_TTL,
    }
    if (await session.execute(WATCH, values)).first() is not None:
        await poll_now(session)


async def mark_used(session: AsyncSession, gpu_count: int) -> None:
    """Catalogue reads use this number of GPUs: poll its segments for the next day."""
    await add_segments(session, [gpu_count])
    await session.execute(MARK_USED, {"gpu_count": gpu_count, "ttl": USE_TTL})


async def poll_now(session: AsyncSession) -> None:
    """Let the poller run now, for something that has just become due."""
    await make_keys_due_now(session, [POLL_KEY])
