"""The waits of operations: begin, sleep again after a refusal, end. Callers hold the lock of the instance."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import CapacityWait, Operation
from server.market import segments
from server.market.wait_draft import Wish, wish_of
from server.market.wake import FITS, IS_ADMITTED, IS_CHEAP, SUITS, lock, run_job, wake
from server.queue.control import keep_job, make_keys_due_now
from server.queue.kinds import ExpireWait, OperationWork, to_args

WAITING_FOR_CAPACITY = "WAITING_FOR_CAPACITY"  # the reason of the instance's status
BLOCKED_FOR = timedelta(seconds=60)  # then budgets and quotas are looked at again
REFUSED_FOR = timedelta(minutes=5)  # then a host is asked again whose product is offered all the time


@dataclass(frozen=True, slots=True)
class Needs:
    """What an offer has to fulfil. `product_id`: that of a machine which is to be started again."""

    product_name: str
    gpu_count: int
    regions: Sequence[str]
    modes: Sequence[str]
    max_price_e5: int | None = None
    rootfs_size_gb: int | None = None
    product_id: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The offer that an operation was woken for, as it is now."""

    region: str
    cluster_id: str
    product_id: str
    mode: str
    price_e5: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is known of an operation that may wait: `row` is null before it has waited."""

    wish: Wish
    row: CapacityWait | None

    def is_awake_in(self, job_id: int) -> bool:
        """Whether this job carries the operation out: its first one, or the one that it was woken with.

        A job whose process died after the operation had fallen asleep is run again, and must not.
        """
        return self.row is None or self.row.job_id == job_id

    @property
    def until(self) -> datetime:
        return self.wish.until if self.row is None else self.row.until

    @property
    def woken_at(self) -> datetime | None:
        return None if self.row is None else self.row.woken_at

    @property
    def is_over(self) -> bool:
        return self.until <= now()


# Of rows from before the clock was set back, which are older than all that come later.
IS_AHEAD = "waiting.since > clock_timestamp() + interval '5 seconds'"
INSERT = text(f"""
    INSERT INTO capacity_wait (operation_id, project_id, instance_id, kind, args, product_name, product_id, gpu_count,
                               rootfs_size_gb, regions, modes, max_price_e5, priority, since, until, unfit,
                               blocked_by, blocked_until, refused_at)
    VALUES (:operation_id, :project_id, :instance_id, :kind, CAST(:args AS jsonb), :product_name, :product_id,
            :gpu_count, :rootfs_size_gb, CAST(:regions AS text[]), CAST(:modes AS text[]), :max_price_e5, :priority,
            coalesce((SELECT max(since) + interval '1 microsecond' FROM capacity_wait AS waiting WHERE {IS_AHEAD}),
                     :since),
            :until, CAST(:unfit AS jsonb), CAST(:blocked_by AS text),
            clock_timestamp() + CAST(:blocked_for AS interval),
            CASE WHEN CAST(:blocked_by AS text) IS NULL AND CAST(:blocked_for AS interval) IS NOT NULL
                 THEN clock_timestamp() END)
    ON CONFLICT (operation_id) DO NOTHING
    RETURNING until, blocked_until
""")
SLEEP = text("""
    UPDATE capacity_wait
    SET job_id = NULL, offer_region = NULL, offer_product_id = NULL, offer_mode = NULL, woken_at = NULL,
        tries = tries + :tries, unfit = unfit || CAST(:unfit AS jsonb), blocked_by = CAST(:blocked_by AS text),
        blocked_until = clock_timestamp() + CAST(:blocked_for AS interval),
        refused_at = CASE WHEN CAST(:blocked_by AS text) IS NULL AND CAST(:blocked_for AS interval) IS NOT NULL
                          THEN clock_timestamp() END
    WHERE operation_id = :operation_id
    RETURNING *
""")
UNBLOCK = text("""
    UPDATE capacity_wait SET blocked_by = NULL, blocked_until = NULL, refused_at = NULL
    WHERE operation_id = :operation_id AND blocked_until IS NOT NULL
""")
BLOCKED = text("SELECT operation_id FROM capacity_wait WHERE project_id = :project_id AND blocked_by IS NOT NULL")
CHANGE = text("UPDATE capacity_wait SET until = :until, priority = :priority WHERE operation_id = :operation_id")
DELETE = text("DELETE FROM capacity_wait WHERE operation_id = :operation_id RETURNING *")
TAKE_TURN = text("""
    INSERT INTO capacity_turn (project_id, served)
    SELECT :project_id, coalesce(max(served), 0) + 1 FROM capacity_turn
    ON CONFLICT (project_id) DO UPDATE SET served = excluded.served
""")
ASLEEP = text("""
    SELECT operation_id, project_id, instance_id, kind, args::text FROM capacity_wait
    WHERE operation_id = :operation_id
      AND (job_id IS NULL OR NOT EXISTS (SELECT FROM job WHERE job.id = capacity_wait.job_id))
""")
FOUND = text(f"""
    SELECT offer.region, cluster_id, offer.product_id, offer.mode, offer.price_e5
    FROM capacity_wait AS waiting, offer JOIN market_region ON market_region.region = offer.region
    WHERE operation_id = :operation_id AND offer.region = offer_region AND offer.product_id = offer_product_id
      AND offer.mode = offer_mode AND offer.is_available AND {FITS}
""")
# Of the same project, with at least its priority, and older. A start that its host has refused can't have the offer.
WANTED = text(f"""
    SELECT DISTINCT offer.region, offer.product_id, offer.mode
    FROM capacity_wait AS waiting JOIN offer ON {SUITS}
    WHERE waiting.project_id = :project_id AND waiting.product_name = :product_name
      AND waiting.gpu_count = :gpu_count AND waiting.priority >= :priority
      AND (waiting.since < :since OR {IS_AHEAD})
      AND waiting.until > clock_timestamp() AND waiting.blocked_by IS NULL AND {IS_CHEAP} AND {IS_ADMITTED}
""")
AHEAD = text(f"""
    SELECT count(*) FROM capacity_wait AS waiting
    WHERE project_id = :project_id AND product_name = :product_name AND gpu_count = :gpu_count
      AND priority >= :priority AND (since < :since OR {IS_AHEAD})
""")


async def load(session: AsyncSession, operation: Operation) -> Waiting | None:
    """None if it was not requested to wait, which needs no query."""
    wish = wish_of(operation)
    if wish is None:
        return None
    row = await session.execute(
        select(CapacityWait).where(CapacityWait.operation_id == operation.id).execution_options(populate_existing=True)
    )
    return Waiting(wish, row.scalar_one_or_none())


async def begin(
    session: AsyncSession,
    operation: Operation,
    work: OperationWork,
    needs: Needs,
    wish: Wish,
    *,
    unfit: Sequence[str] = (),
    by_host: bool = False,
    blocked_by: str | None = None,
) -> None:
    """Let an operation wait for an offer, in the transaction in which it found none; `work` is what it does with one.

    `by_host`: the host of its machine is full, whatever is offered elsewhere. `blocked_by`: see `sleep`.

    The run that calls this ends: the operation gets a job of its own when it is woken, at once if an offer came
    meanwhile.
    """
    await segments.add_segments(session, [needs.gpu_count])
    await segments.poll_now(session)
    await lock(session)
    values: dict[str, Any] = {
        "operation_id": operation.id,
        "project_id": operation.project_id,
        "instance_id": operation.instance_id,
        "kind": work.kind,
        "args": to_args(work),
        "product_name": needs.product_name,
        "product_id": needs.product_id,
        "gpu_count": needs.gpu_count,
        "rootfs_size_gb": needs.rootfs_size_gb,
        "regions": list(needs.regions),
        "modes": list(needs.modes),
        "max_price_e5": needs.max_price_e5,
        "priority": wish.priority,
        "since": operation.created_at,
        "until": wish.until,
        "unfit": orjson.dumps(list(unfit)).decode(),
        "blocked_by": blocked_by,
        "blocked_for": _blocked_for(blocked_by, by_host=by_host),
    }
    row = (await session.execute(INSERT, values)).one_or_none()
    if row is None:
        return
    at = row.until if row.blocked_until is None else min(row.until, row.blocked_until)
    await keep_expiry(session, operation.id, operation.project_id, operation.instance_id, at=at)
    await wake(session, gpu_count=needs.gpu_count, product_name=needs.product_name)


async def sleep(
    session: AsyncSession,
    operation_id: UUID,
    *,
    is_try: bool = False,
    unfit: Sequence[str] = (),
    blocked_by: str | None = None,
    by_host: bool = False,
) -> None:
    """Let an operation that is awake wait on, with its place, and wake the one after it where that fits.

    `blocked_by`: it is not woken while its budget or quota is used up, but looked at again after a minute.
    """
    await lock(session)
    values = {
        "operation_id": operation_id,
        "tries": int(is_try),
        "unfit": orjson.dumps(list(unfit)).decode(),
        "blocked_by": blocked_by,
        "blocked_for": _blocked_for(blocked_by, by_host=by_host),
    }
    row = (await session.execute(SLEEP, values)).one_or_none()
    if row is None:
        return
    at = row.until if row.blocked_until is None else min(row.until, row.blocked_until)
    await keep_expiry(session, operation_id, row.project_id, row.instance_id, at=at)
    await wake(session, gpu_count=row.gpu_count, product_name=row.product_name)


def _blocked_for(blocked_by: str | None, *, by_host: bool) -> timedelta | None:
    return REFUSED_FOR if by_host else None if blocked_by is None else BLOCKED_FOR


async def unblock(session: AsyncSession, row: CapacityWait) -> None:
    """Look again whether its budget or quota allows it, if an offer is available."""
    await lock(session)
    await session.execute(UNBLOCK, {"operation_id": row.operation_id})
    await keep_expiry(session, row.operation_id, row.project_id, row.instance_id, at=row.until)
    await wake(session, gpu_count=row.gpu_count, product_name=row.product_name)


async def look_at_blocked(session: AsyncSession, project_id: UUID) -> None:
    """A budget or quota of the project has changed: let EXPIRE_WAIT look at what it blocks."""
    blocked = (await session.execute(BLOCKED, {"project_id": project_id})).scalars()
    if keys := [expiry_key(each) for each in blocked]:
        await make_keys_due_now(session, keys)


async def end(session: AsyncSession, operation_id: UUID, *, is_served: bool) -> None:
    """The operation has a machine or has ended: it waits no longer, and the one after it may have its offer."""
    await lock(session)
    row = (await session.execute(DELETE, {"operation_id": operation_id})).one_or_none()
    if row is None:
        return
    await keep_expiry(session, operation_id, row.project_id, row.instance_id, at=None)
    if is_served:
        await session.execute(TAKE_TURN, {"project_id": row.project_id})
    if row.job_id is not None:
        await wake(session, gpu_count=row.gpu_count, product_name=row.product_name)


async def change(session: AsyncSession, row: CapacityWait, wish: Wish) -> None:
    """Another end or priority of a wait."""
    await lock(session)
    await session.execute(CHANGE, {"operation_id": row.operation_id, "until": wish.until, "priority": wish.priority})
    at = wish.until if row.blocked_until is None else min(wish.until, row.blocked_until)
    await keep_expiry(session, row.operation_id, row.project_id, row.instance_id, at=at)


async def look_now(session: AsyncSession, operation_id: UUID) -> bool:
    """Run the job of an operation that sleeps, without an offer: its wait is over, or its machine has changed."""
    await lock(session)
    row = (await session.execute(ASLEEP, {"operation_id": operation_id})).one_or_none()
    if row is None:
        return False
    await run_job(session, row, {"region": None, "product_id": None, "mode": None})
    return True


async def found(session: AsyncSession, operation_id: UUID) -> Found | None:
    """The offer that it was woken for; None if that is no longer available, or no longer fits."""
    row = (await session.execute(FOUND, {"operation_id": operation_id})).one_or_none()
    return None if row is None else Found(*row)


async def wanted_by_older(
    session: AsyncSession, *, project_id: UUID, product_name: str, gpu_count: int, priority: int, since: datetime
) -> frozenset[tuple[str, str, str]]:
    """The offers (region, product, mode) for which an operation of the project waits that goes first."""
    values = {
        "project_id": project_id,
        "product_name": product_name,
        "gpu_count": gpu_count,
        "priority": priority,
        "since": since,
    }
    return frozenset((row[0], row[1], row[2]) for row in await session.execute(WANTED, values))


async def count_ahead(
    session: AsyncSession, *, project_id: UUID, product_name: str, gpu_count: int, priority: int, since: datetime
) -> int:
    """How many operations of the project wait for such a product and go before one that came at this time."""
    values = {
        "project_id": project_id,
        "product_name": product_name,
        "gpu_count": gpu_count,
        "priority": priority,
        "since": since,
    }
    return (await session.execute(AHEAD, values)).scalar_one()


def expiry_key(operation_id: UUID) -> str:
    return f"wait {operation_id}"


async def keep_expiry(
    session: AsyncSession, operation_id: UUID, project_id: UUID, instance_id: UUID, *, at: datetime | None
) -> None:
    """Let EXPIRE_WAIT run at this time; None: not at all."""
    await keep_job(
        session,
        ExpireWait(operation_id),
        unique_key=expiry_key(operation_id),
        at=at,
        project_id=project_id,
        instance_id=instance_id,
    )
