"""The ledger: for which time each machine was paid, at which price. Only `server.instances.transitions` and `machines`
write it.

An entry is open while its machine is paid for; an instance whose machine is being replaced may have two. It is cut when
price or labels change and at midnight UTC, so that a closed entry has one price and lies within one day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.billing import MONTHLY, UNBILLED_STATUSES, is_paid
from server.db.tables import Instance
from server.spend.machine_times import MachineTimes
from server.spend.sums import AMOUNT, take_back
from server.spend.watch import wake


@dataclass(frozen=True, slots=True)
class Ended:
    """The project of what was ended, if it has a budget; and whether its run was over before the entry began."""

    watched: UUID | None
    was_over: bool


@dataclass(frozen=True, slots=True)
class CostBasis:
    """The columns of an instance that its entry follows."""

    is_paid: bool | None
    rate: tuple[object, ...]

    @property
    def machine(self) -> object:
        return self.rate[0]

    @classmethod
    def of(cls, row: Instance) -> "CostBasis":
        return cls(
            is_paid(
                row.status,
                row.novita_status,
                is_hourly=row.novita_id is not None and row.billing_mode != MONTHLY,
            ),
            (row.novita_id, row.price_per_hour_e5, row.labels, row.product_name, row.region),
        )


# An end that the provider does not name, or that can't be true, is now. Days have 24 hours in UTC.
NEXT_DAY = "date_trunc('day', {0}, 'UTC') + interval '24 hours'"
COLUMNS = "project_id, instance_id, machine, token_id, labels, price_e5, product_name, region, run_began_at"
# The project if it has a budget: in the same statement, so that those without pay nothing.
WATCHED = "(SELECT budget.project_id FROM budget WHERE budget.project_id = cost_entry.project_id LIMIT 1)"
FIRST_END = f"least(old.ends_at, {NEXT_DAY.format('cost_entry.began_at')})"
# An end before the entry's own beginning is true if it is of this run, not of the one before it: the entry follows a
# cut, or began when the machine was first seen.
RUN_BEFORE = """(SELECT max(ended_at) FROM cost_entry AS before
                 WHERE before.instance_id = cost_entry.instance_id AND before.machine = cost_entry.machine
                   AND before.run_began_at < cost_entry.run_began_at)"""
CREATED = "(SELECT date_trunc('second', created_at) FROM instance WHERE instance.id = cost_entry.instance_id)"
END = text(f"""
    WITH old AS (
        SELECT id, CASE WHEN at BETWEEN began_at AND now THEN at
                        WHEN at < began_at AND at > coalesce({RUN_BEFORE}, {CREATED}) AND NOT CAST(:goes_on AS boolean)
                        THEN began_at
                        ELSE greatest(began_at, now) END AS ends_at
        FROM cost_entry, clock_timestamp() AS now, CAST(:at AS timestamptz) AS at
        WHERE instance_id = ANY(CAST(:instance_ids AS uuid[])) AND ended_at IS NULL
          AND (CAST(:machine AS text) IS NULL OR machine = CAST(:machine AS text))
    ), ended AS (
        UPDATE cost_entry SET ended_at = {FIRST_END}, amount_micros = {AMOUNT.format("began_at", FIRST_END)}
        FROM old WHERE cost_entry.id = old.id AND cost_entry.ended_at IS NULL
        RETURNING cost_entry.*, old.ends_at
    ), days AS (
        INSERT INTO cost_entry ({COLUMNS}, began_at, ended_at, amount_micros)
        SELECT {COLUMNS}, day, least(day + interval '24 hours', ends_at),
               {AMOUNT.format("day", "least(day + interval '24 hours', ends_at)")}
        FROM ended, generate_series(ended_at, ends_at, interval '24 hours') AS day
        WHERE day < ends_at
    ), goes_on AS (
        INSERT INTO cost_entry ({COLUMNS}, began_at)
        SELECT ended.project_id, instance.id, machine, token_id, instance.labels,
               CASE WHEN machine = novita_id THEN price_per_hour_e5 ELSE price_e5 END,
               instance.product_name, CASE WHEN machine = novita_id THEN instance.region ELSE ended.region END,
               run_began_at, ends_at
        FROM ended JOIN instance ON instance.id = ended.instance_id
        WHERE CAST(:goes_on AS boolean)
    )
    SELECT (SELECT project_id FROM ended JOIN budget USING (project_id) LIMIT 1) AS watched,
           (SELECT bool_or(CAST(:at AS timestamptz) < began_at AND ended_at = began_at) FROM ended) AS was_over
""")

# The token that requested the run pays for it.
PAYER = """(SELECT requested_by FROM operation WHERE instance_id = instance.id AND kind IN ('CREATE', 'START')
             AND requested_by IS NOT NULL ORDER BY created_at DESC LIMIT 1)"""
# An entry never begins before the end of the one before it; a run that began before that end goes on from there. One
# without a duration has been corrected to nothing.
BEGIN = text(f"""
    INSERT INTO cost_entry ({COLUMNS}, began_at)
    SELECT project_id, id, novita_id, {PAYER}, labels, price_per_hour_e5, product_name, region,
           CASE WHEN at < last.ended_at - interval '1 second' THEN last.run_began_at ELSE begins_at END, begins_at
    FROM instance CROSS JOIN clock_timestamp() AS now CROSS JOIN CAST(:at AS timestamptz) AS at LEFT JOIN LATERAL (
        SELECT ended_at, run_began_at FROM cost_entry
        WHERE instance_id = instance.id AND machine = instance.novita_id AND ended_at > began_at
        ORDER BY began_at DESC LIMIT 1
    ) AS last ON true CROSS JOIN LATERAL (
        SELECT CASE WHEN at <= now THEN greatest(at, last.ended_at) ELSE now END AS begins_at
    ) AS known
    WHERE id = :instance_id AND (begins_at = at OR NOT CAST(:is_unseen AS boolean))
      AND (begins_at >= date_trunc('second', instance.created_at) OR NOT CAST(:is_missed AS boolean))
    ON CONFLICT (instance_id, machine) WHERE ended_at IS NULL DO NOTHING
    RETURNING {WATCHED}
""")
# A machine besides the one that serves: of the same run, at its own price. It may have begun before its row, which is
# written after the response to its create; and the one that serves may not have been shown yet.
BEGIN_SECOND = text(f"""
    INSERT INTO cost_entry ({COLUMNS}, began_at)
    SELECT instance.project_id, instance.id, machine.novita_id,
           CASE WHEN run.id IS NULL THEN {PAYER} ELSE run.token_id END, coalesce(run.labels, instance.labels),
           machine.price_e5, instance.product_name, machine.region, coalesce(run.run_began_at, begins_at), begins_at
    FROM machine JOIN instance ON instance.id = machine.instance_id CROSS JOIN clock_timestamp() AS now
    CROSS JOIN CAST(:at AS timestamptz) AS at LEFT JOIN LATERAL (
        SELECT * FROM cost_entry WHERE instance_id = machine.instance_id ORDER BY began_at DESC LIMIT 1
    ) AS run ON true CROSS JOIN LATERAL (
        SELECT CASE WHEN at <= now THEN greatest(at, (
                   SELECT max(ended_at) FROM cost_entry
                   WHERE instance_id = machine.instance_id AND cost_entry.machine = machine.novita_id))
               ELSE now END AS begins_at
    ) AS known
    WHERE machine.instance_id = :instance_id AND machine.novita_id = :machine
      AND machine.billing_mode IS DISTINCT FROM '{MONTHLY}'
      AND (NOT CAST(:is_missed AS boolean) OR begins_at = at)
    ON CONFLICT (instance_id, machine) WHERE ended_at IS NULL DO NOTHING
    RETURNING {WATCHED}
""")

BEGAN_BEFORE = text("""
    SELECT run_began_at < CAST(:at AS timestamptz) FROM cost_entry
    WHERE instance_id = :instance_id AND machine = :machine AND ended_at IS NULL
""")
# An entry that began when its machine was first seen begins when the provider says, once it says so.
BEGAN_EARLIER = text("""
    UPDATE cost_entry
    SET began_at = begins_at, run_began_at = CASE WHEN run_began_at = began_at THEN begins_at ELSE run_began_at END
    FROM (
        SELECT greatest(CAST(:at AS timestamptz), max(ended_at)) AS begins_at FROM cost_entry
        WHERE instance_id = :instance_id AND machine = :machine
    ) AS known
    WHERE instance_id = :instance_id AND machine = :machine AND ended_at IS NULL AND began_at > begins_at
      AND date_trunc('day', began_at, 'UTC') = date_trunc('day', begins_at, 'UTC')
""")

RECORDED = text("""
    SELECT machine, price_e5, labels, product_name, region FROM cost_entry
    WHERE instance_id = :instance_id AND ended_at IS NULL AND machine = :machine
""")
# Of machines that their instance no longer has.
LEFT_OPEN = text("""
    SELECT machine FROM cost_entry AS entry JOIN instance ON instance.id = entry.instance_id
    WHERE entry.instance_id = :instance_id AND entry.ended_at IS NULL AND machine IS DISTINCT FROM instance.novita_id
      AND NOT EXISTS (SELECT FROM machine AS each WHERE each.instance_id = :instance_id
                                                   AND each.novita_id = entry.machine AND each.ended_at IS NULL)
""")
# Instances that are being changed are left for the next time. The locks come first, in a statement of their own: what
# follows sees what their last holders wrote.
LOCK_OVERNIGHT = text("""
    SELECT id FROM instance
    WHERE id = ANY(ARRAY(SELECT instance_id FROM cost_entry
                         WHERE ended_at IS NULL AND began_at < date_trunc('day', clock_timestamp(), 'UTC')
                         LIMIT :limit))
    FOR NO KEY UPDATE SKIP LOCKED
""")


async def follow(session: AsyncSession, row: Instance, *, before: CostBasis, times: MachineTimes) -> bool:
    """Write what a change of a locked instance means for its entry; `before` is its state before the change.

    False, and no statement, if it means nothing.
    """
    after = CostBasis.of(row)
    if after.is_paid is False and before.is_paid is not True and times.missed_run and after.machine == before.machine:
        return await _write_missed(session, row, *times.missed_run)
    is_same = after.machine == before.machine
    was_down = False
    if is_same and after.is_paid and before.is_paid and times.run_began_at is not None:
        was_down = await _write_pause(session, row, times)
        await begin_earlier(session, row.id, row.novita_id, at=times.run_began_at)
    if after == before or (after.is_paid is not True and before.is_paid is False):
        return await begin_unknown(session, row, times=times) or was_down
    if after.is_paid is False:
        if is_same or after.machine is None:
            await end_machine(session, row.id, before.machine, at=times.stopped_at)
    else:
        if is_same and after.rate != before.rate:
            await _wake(session, (await _end(session, [row.id], at=None, goes_on=True)).watched)
        if after.is_paid and not (is_same and before.is_paid):
            await _begin(session, row, at=times.run_began_at)
        await begin_unknown(session, row, times=times)
    return True


async def begin_unknown(session: AsyncSession, row: Instance, *, times: MachineTimes) -> bool:
    """An unknown word changes nothing about a machine that was started and has not stopped: it is paid for since its
    start. False if the ledger has that run."""
    is_unknown_run = CostBasis.of(row).is_paid is None and times.run_began_at is not None
    return is_unknown_run and await _begin(session, row, at=times.run_began_at, is_unseen=True)


async def _begin(
    session: AsyncSession, row: Instance, *, at: datetime | None, is_unseen: bool = False, is_missed: bool = False
) -> bool:
    """`is_unseen`: only if the ledger has nothing after `at`; `is_missed`: nor before its instance was made."""
    values = {"instance_id": row.id, "at": at, "is_unseen": is_unseen, "is_missed": is_missed}
    begun = (await session.execute(BEGIN, values)).first()
    await _wake(session, None if begun is None else begun[0])
    return begun is not None


async def _write_missed(session: AsyncSession, row: Instance, began_at: datetime, ended_at: datetime) -> bool:
    """The run of a machine that began and ended since it was last looked at; nothing if the ledger has it."""
    await _begin(session, row, at=began_at, is_unseen=True, is_missed=True)
    await end_machine(session, row.id, row.novita_id, at=ended_at)
    await take_back(session, row.id, row.novita_id, since=ended_at)
    return True


async def _write_pause(session: AsyncSession, row: Instance, times: MachineTimes) -> bool:
    """The machine ended and runs again since it was last looked at. False if the open entry is of the present run."""
    if times.pause is None:
        return False
    stopped_at, began_at = times.pause
    machine = {"instance_id": row.id, "machine": row.novita_id}
    if not await session.scalar(BEGAN_BEFORE, {**machine, "at": stopped_at}):
        return False
    await end_machine(session, row.id, row.novita_id, at=stopped_at)
    await _begin(session, row, at=began_at)
    return True


async def begin_second(
    session: AsyncSession, instance_id: UUID, machine: str, *, at: datetime | None, is_missed: bool = False
) -> None:
    """A machine that does not serve is paid for, too; nothing if that is known. `is_missed`: its run is over."""
    values = {"instance_id": instance_id, "machine": machine, "at": at, "is_missed": is_missed}
    await _wake(session, await session.scalar(BEGIN_SECOND, values))


async def begin_earlier(session: AsyncSession, instance_id: UUID, machine: object, *, at: datetime) -> None:
    """The provider has said since when the machine runs; nothing if its entry began before."""
    await session.execute(BEGAN_EARLIER, {"instance_id": instance_id, "machine": machine, "at": at})


async def end_machine(session: AsyncSession, instance_id: UUID, machine: object, *, at: datetime | None) -> None:
    """A machine is no longer paid for; nothing if that is known."""
    ended = await _end(session, [instance_id], at=at, goes_on=False, machine=machine)
    if ended.was_over:
        await take_back(session, instance_id, machine, since=at)
    await _wake(session, ended.watched)


async def repair(session: AsyncSession, row: Instance, *, times: MachineTimes) -> bool:
    """Compare the entry of a locked instance with its row, and correct the entry. False if there was nothing to do.

    Without the provider's times, the row says since when it is known to run or not to run.
    """
    others = (await session.execute(LEFT_OPEN, {"instance_id": row.id})).scalars().all()
    for machine in others:
        await end_machine(session, row.id, machine, at=None)
    recorded = {"instance_id": row.id, "machine": row.novita_id}
    open_entry = (await session.execute(RECORDED, recorded)).first()
    before = CostBasis(False, CostBasis.of(row).rate) if open_entry is None else CostBasis(True, tuple(open_entry))
    stopped_at = times.stopped_at or row.deleted_at or (row.status_since if row.status in UNBILLED_STATUSES else None)
    is_known_paid = CostBasis.of(row).is_paid
    started_at = times.run_began_at or (row.running_at if is_known_paid else None)
    known = (
        MachineTimes(stopped_at=stopped_at)
        if is_known_paid is False
        else MachineTimes(started_at, times.pause and times.pause[0])
    )
    return await follow(session, row, before=before, times=known) or bool(others)


async def cut_at_midnight(session: AsyncSession, *, limit: int) -> int:
    """Cut the entries that were open at midnight; returns how many."""
    locked = list((await session.execute(LOCK_OVERNIGHT, {"limit": limit})).scalars())
    if locked:
        midnight: datetime = (
            await session.execute(text("SELECT date_trunc('day', clock_timestamp(), 'UTC')"))
        ).scalar_one()
        await _end(session, locked, at=midnight, goes_on=True)
    return len(locked)


async def _end(
    session: AsyncSession,
    instance_ids: Sequence[UUID],
    *,
    at: datetime | None,
    goes_on: bool,
    machine: object = None,
) -> "Ended":
    """End the open entries, all or those of one machine; with `goes_on`, another one follows each."""
    values = {"instance_ids": instance_ids, "at": at, "goes_on": goes_on, "machine": machine}
    row = (await session.execute(END, values)).one()
    return Ended(row.watched, bool(row.was_over))


async def _wake(session: AsyncSession, project_id: UUID | None) -> None:
    """After a change of the burn rate of a project that has a budget."""
    if project_id is not None:
        await wake(session, project_id)
