"""Chooses the place to read next: watched ones often, others rarely, within one limit of calls."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.novita.models import Cluster
from server.queue.control import make_keys_due_now

SPOT, ON_DEMAND = "spot", "onDemand"
MODES = (SPOT, ON_DEMAND)
POLL_KEY = "recurring POLL_MARKET"  # of the one job that reads the market
MINUTE = 60.0
WATCH_FOR = timedelta(seconds=60)
# Places for other numbers of GPUs are read as long as a catalogue read has needed them in this time.
WANTED_FOR = timedelta(days=1)
PAUSE_MIN, PAUSE_MAX = 0.02, 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """What one call of the provider lists. `gpu_count` 0: CPU products, which have one billing mode."""

    region: str
    mode: str
    gpu_count: int
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Due:
    """A place, the seconds until it is to be read, and whether a subscriber watches it."""

    place: Place
    seconds: float
    is_hot: bool


ADD_PLACES = text("""
    INSERT INTO market_place (region, mode, gpu_count, cluster_id)
    SELECT * FROM unnest(CAST(:regions AS text[]), CAST(:modes AS text[]), CAST(:counts AS smallint[]),
                         CAST(:clusters AS text[]))
    ON CONFLICT (region, mode, gpu_count) DO UPDATE SET cluster_id = excluded.cluster_id
    WHERE market_place.cluster_id <> excluded.cluster_id
""")
READ_PLACES = text("""
    SELECT region, mode, gpu_count, cluster_id, watched_until > clock_timestamp() AS is_watched,
           gpu_count = 1 OR wanted_at > clock_timestamp() - CAST(:wanted_for AS interval) AS is_read,
           extract(epoch FROM clock_timestamp() - asked_at)::float8 AS asked_ago
    FROM market_place WHERE region = ANY(CAST(:regions AS text[]))
""")
READ_CALLS = text("""
    SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM market_call
    WHERE at > clock_timestamp() - interval '1 minute' AND at <= clock_timestamp() ORDER BY at
""")
FORGET_CALLS = text("DELETE FROM market_call WHERE at <= clock_timestamp() - interval '1 minute'")
ADD_CALL = text("INSERT INTO market_call (at) VALUES (clock_timestamp())")
MARK_ASKED = text("""
    UPDATE market_place SET asked_at = clock_timestamp()
    WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count
    RETURNING asked_at
""")
WATCH = text("""
    UPDATE market_place SET watched_until = clock_timestamp() + CAST(:period AS interval)
    WHERE (CAST(:regions AS text[]) IS NULL OR region = ANY(CAST(:regions AS text[])))
      AND (CAST(:modes AS text[]) IS NULL OR mode = ANY(CAST(:modes AS text[])))
      AND gpu_count = :gpu_count
      AND (watched_until IS NULL OR watched_until < clock_timestamp() + CAST(:period AS interval) / 2)
    RETURNING region
""")
WANT = text("""
    UPDATE market_place SET wanted_at = clock_timestamp() WHERE gpu_count = :gpu_count AND mode = :mode
      AND (wanted_at IS NULL OR wanted_at < clock_timestamp() - interval '1 hour')
""")


async def add_places(session: AsyncSession, clusters: Sequence[Cluster], counts: Iterable[int]) -> None:
    """Every region has a place for each billing mode and number of GPUs."""
    places = [
        (cluster.code, mode, count, cluster.id)
        for cluster in clusters
        for count in sorted(set(counts))
        for mode in ((ON_DEMAND,) if count == 0 else MODES)
    ]
    regions, modes, numbers, ids = zip(*places, strict=True) if places else ((), (), (), ())
    await session.execute(
        ADD_PLACES, {"regions": list(regions), "modes": list(modes), "counts": list(numbers), "clusters": list(ids)}
    )


async def read_due(
    session: AsyncSession,
    regions: Sequence[str],
    *,
    hot: timedelta,
    cold: timedelta,
) -> list[Due]:
    """All places that are read at all."""
    rows = await session.execute(READ_PLACES, {"regions": list(regions), "wanted_for": WANTED_FOR})
    found: list[Due] = []
    for row in rows:
        is_hot = bool(row.is_watched)
        if not is_hot and not row.is_read:
            continue
        every = (hot if is_hot else cold).total_seconds()
        # Never asked, or asked in what is the future since the database's clock was set back: now.
        ago: float | None = row.asked_ago
        seconds = 0.0 if ago is None or ago < 0 else max(0.0, every - ago)
        found.append(Due(Place(row.region, row.mode, row.gpu_count, row.cluster_id), seconds, is_hot))
    return found


async def read_calls(session: AsyncSession) -> list[float]:
    """How many seconds ago each call of the last minute was made, the oldest first."""
    return list((await session.execute(READ_CALLS)).scalars())


async def begin_call(session: AsyncSession, place: Place) -> datetime:
    """Count a call before it is made; returns its time by the database's clock."""
    await session.execute(FORGET_CALLS)
    await session.execute(ADD_CALL)
    values = {"region": place.region, "mode": place.mode, "gpu_count": place.gpu_count}
    return (await session.execute(MARK_ASKED, values)).scalar_one()


def choose(due: Sequence[Due], calls: Sequence[float], *, calls_max: int, hot: timedelta) -> tuple[Place | None, float]:
    """The place to read now, or None and the seconds until one may be read.

    Cold places use only what hot ones leave, at least a quarter: so a hot place is not late because of them.
    """
    hot_count = sum(each.is_hot for each in due)
    needed = min(calls_max * 3 // 4, round(hot_count * MINUTE / hot.total_seconds()))
    limits = {True: calls_max, False: max(1, calls_max - needed)}
    waits: list[tuple[float, bool, float, Place]] = []
    for each in due:
        free_in = _free_in(calls, limits[each.is_hot])
        waits.append((max(each.seconds, free_in), not each.is_hot, each.seconds, each.place))
    if not waits:
        return None, PAUSE_MAX
    wait, _, _, place = min(waits, key=lambda each: each[:3])
    if wait <= 0:
        return place, 0.0
    return None, min(max(wait, PAUSE_MIN), PAUSE_MAX)


def _free_in(calls: Sequence[float], limit: int) -> float:
    """Seconds until fewer than `limit` calls are younger than a minute."""
    surplus = len(calls) - limit
    return 0.0 if surplus < 0 else MINUTE - calls[surplus]


async def watch(
    session: AsyncSession, *, regions: Sequence[str] | None, modes: Sequence[str] | None, gpu_count: int
) -> None:
    """A subscriber reads these places: read them often for the next minute. Writes only every half of that time."""
    values = {
        "regions": None if regions is None else list(regions),
        "modes": None if modes is None else list(modes),
        "gpu_count": gpu_count,
        "period": WATCH_FOR,
    }
    if (await session.execute(WATCH, values)).first() is not None:
        await hurry(session)


async def want(session: AsyncSession, clusters: Sequence[Cluster], *, mode: str, gpu_count: int) -> None:
    """A catalogue read needs these places: keep them on the tape for a day."""
    await add_places(session, clusters, [gpu_count])
    await session.execute(WANT, {"mode": mode, "gpu_count": gpu_count})


async def hurry(session: AsyncSession) -> None:
    """Let the poller look now what is due: something new waits."""
    await make_keys_due_now(session, [POLL_KEY])
